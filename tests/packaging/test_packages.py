"""The .deb and the .rpm: their description is whole, and what is built from it runs as a user without rights."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.rig.kafka import values

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker

PROJECT = Path(__file__).parents[2]
NFPM = PROJECT / "packaging/nfpm"
SCRIPTS = [PROJECT / "scripts/package", *sorted(NFPM.glob("*.sh"))]
INSIDE = """
mount -t tmpfs -o mode=755 tmpfs /opt && mkdir /opt/copycat && mount --bind "$1" /opt/copycat && mount -o remount,bind,ro /opt/copycat
shift; exec setpriv --reuid nobody --regid nogroup --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


@pytest.fixture
def description() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((NFPM / "nfpm.yaml").read_text("utf-8"))
    return document


def test_everything_that_is_packed_is_there(description: dict[str, Any]) -> None:
    sources = [one["src"] for one in description["contents"] if "src" in one and one.get("type") != "symlink"]
    missing = [source for source in sources if not source.startswith("build/package/root/") and not list(PROJECT.glob(source))]
    assert missing == []
    assert all((PROJECT / path).is_file() for path in description["scripts"].values())
    assert all((PROJECT / path).is_file() for path in description["rpm"]["scripts"].values())


def test_what_an_operator_edits_survives_an_upgrade(description: dict[str, Any]) -> None:
    """Files below /etc are configuration files of the package manager; definitions come from nobody but the operator."""
    below = {one["dst"]: one.get("type") for one in description["contents"] if one["dst"].startswith("/etc/")}
    assert below == {"/etc/copycat/agent.yaml": "config|noreplace", "/etc/copycat": "dir", "/etc/copycat/connectors.d": "dir"}


def test_alerts_and_dashboard_come_with_the_packages(description: dict[str, Any]) -> None:
    packed = {one["dst"]: one.get("src") for one in description["contents"]}
    assert packed["/usr/share/copycat/prometheus/alerts.yml"] == "packaging/prometheus/alerts.yml"
    assert packed["/usr/share/copycat/grafana/copycat.json"] == "packaging/grafana/copycat.json"


def test_the_packaged_command_begins_where_signals_find_their_handlers() -> None:
    """`cli.main` takes half a second to import: `__main__` sees to it that signals end it as documented."""
    assert "from copycat_agent.__main__ import main" in (NFPM / "copycat.py").read_text("utf-8")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_are_sound(script: Path) -> None:
    shell = re.match(r"#!.*?(\w+)\n", script.read_text("utf-8"))
    assert shell
    subprocess.run([shell[1], "-n", str(script)], check=True)
    assert script.stat().st_mode & 0o111 == 0o111
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-x", str(script)], cwd=PROJECT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_environment_is_what_the_lock_file_says_and_the_packager_is_pinned() -> None:
    script = (PROJECT / "scripts/package").read_text("utf-8")
    assert "--require-hashes --only-binary :all: --no-binary pyspark -r requirements.lock" in script
    names = re.findall(r"^([a-z0-9-]+)==", (PROJECT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert {"pandas", "aws-msk-iam-sasl-signer-python"} <= set(names), "all extras are in it"
    assert re.search(r"^nfpm_version=v\d+\.\d+\.\d+$", script, re.MULTILINE)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_deb_is_whole(deb: Path) -> None:
    fields = subprocess.run(["dpkg-deb", "--field", str(deb)], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^Depends: python3\.\d+, default-jre-headless \(>= 2:1\.17\) \| ", fields, re.MULTILINE)
    listed = subprocess.run(["dpkg-deb", "--contents", str(deb)], capture_output=True, text=True, check=True).stdout.splitlines()
    names = {line.split()[5] for line in listed}
    for name in (
        "usr/bin/copycat", "usr/lib/systemd/system/copycat.service", "usr/lib/sysusers.d/copycat.conf", "usr/lib/tmpfiles.d/copycat.conf",
        "etc/copycat/agent.yaml", "usr/share/bash-completion/completions/copycat", "usr/share/doc/copycat-agent/copyright",
    ):  # fmt: skip
        assert f"./{name}" in names or f"/{name}" in names, name
    assert all(line.split()[1] == "root/root" for line in listed)
    assert not [line for line in listed if line[0] != "l" and "w" in (line[5], line[8])], "nothing is writable for others"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_rpm_is_whole(rpm: Path) -> None:
    if shutil.which("rpm") is None:
        pytest.skip("rpm is not installed")
    said = {
        option: subprocess.run(["rpm", "-qp", option, str(rpm)], capture_output=True, text=True, check=True).stdout
        for option in ("--requires", "--list", "--scripts", "--configfiles")
    }
    assert re.search(r"^/usr/bin/python3\.\d+$", said["--requires"], re.MULTILINE)
    assert "java-headless >= 1:17" in said["--requires"]
    assert said["--configfiles"].split() == ["/etc/copycat/agent.yaml"]
    assert "/opt/copycat/bin/copycat" in said["--list"].split()
    assert "posttrans" in said["--scripts"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_the_deb_holds_runs_read_only_and_without_rights(
    tmp_path: Path, deb: Path, broker: DevBroker, make_topic: Callable[..., str], open_path: Path
) -> None:
    root, topic = tmp_path / "root", make_topic()
    subprocess.run(["dpkg-deb", "--extract", str(deb), str(root)], check=True)
    for name in ("state", "connectors.d", "logs"):
        (open_path / name).mkdir()
    shutil.chown(open_path / "state", "nobody")
    (open_path / "state").chmod(0o700)
    (open_path / "logs/app.log").write_text("one\ntwo\n", "utf-8")
    (open_path / "connectors.d/app.yaml").write_text(
        f"name: app\nsource: {{type: log_file, include: ['{open_path}/logs/*.log']}}\nrecord: {{topic: {topic}}}\n", "utf-8"
    )

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE, "sh", str(root / "opt/copycat")]
        command = ["/opt/copycat/bin/copycat", *arguments]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(open_path / "state")}
        return subprocess.run([*inside, *command], env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert re.fullmatch(r"\d+\.\d+\.\d+\n", call("version").stdout)
    servers = ("--bootstrap-servers", broker.bootstrap)
    checked = call("check", str(open_path / "connectors.d"))
    assert checked.returncode == 0, checked.stderr
    ran = call("run", str(open_path / "connectors.d"), "--until-idle", "--state-dir", str(open_path / "state"), *servers)
    assert ran.returncode == 0, ran.stderr
    assert values(broker.bootstrap, topic) == [b"one", b"two"]
