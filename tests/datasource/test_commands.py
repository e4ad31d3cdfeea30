"""What the commands say of a data source. All but `offsets` need no Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.datasource.conftest import arrived, of, shown
from tests.rig.cache import CACHE
from tests.rig.in_process import caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.datasource.conftest import Shop
    from tests.rig.shipping import Shipping

pytestmark = pytest.mark.timeout(300)
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def copycat(readers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """`copycat("check", ...)` in this process, which can import the readers; they plan in a process of their own all the same."""
    del readers
    for name, value in {"HOME": str(tmp_path), "NO_COLOR": "1", **CACHE}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return caller(capsys, monkeypatch)


@pytest.fixture
def alone(here: dict[str, str], tmp_path: Path) -> Callable[..., Done]:
    """As `copycat`, as a process of its own that can import the readers."""

    def call(*arguments: object) -> Done:
        command = [sys.executable, "-m", "copycat_agent", *map(str, arguments)]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "NO_COLOR": "1", **CACHE, **here}
        return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment, cwd=tmp_path)

    return call


@pytest.fixture
def define(tmp_path: Path, shop: Shop) -> Callable[..., Path]:
    """`define(source options, sections)` writes connectors.d/app.yaml; by default the page's reader."""

    def write(source: dict[str, Any] | None = None, **sections: Any) -> Path:
        path = tmp_path / "connectors.d/app.yaml"
        path.parent.mkdir(exist_ok=True)
        chosen = source or of("orders:Orders", {"database": shop.path})
        kafka = {"bootstrap_servers": ["127.0.0.1:1"]}
        document = {"name": "app", "source": chosen, "record": {"topic": "orders"}, "kafka": kafka, **sections}
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    return write


def test_the_definition_of_the_page_is_good(alone: Callable[..., Done], define: Callable[..., Path], shop: Shop) -> None:
    path = define()
    path.write_text("name: orders\n" + shown("orders.yaml").replace("/var/lib/shop/shop.db", str(shop.path)))
    done = alone("check", path.parent)
    assert (done.returncode, done.stdout) == (0, "good orders: datasource -> orders\n"), done.stderr


@pytest.mark.parametrize(
    ("source", "place", "words"),
    [
        (of("orders:Order", {"database": "/x"}), ":4:10:", "module orders has no Order"),
        (of("nowhere:Orders", {}), ":4:10:", "there is no module nowhere"),
        (of("batches:NoStream", {}), ":4:10:", "it has neither streamReader nor simpleStreamReader"),
        (of("orders:Orders", {"databse": "/x"}), ":5:3:", "KeyError at orders.py:"),
        (of("no colon", {}), ":4:10:", "class"),
    ],
)
def test_check_says_where_a_definition_names_no_reader(
    source: dict[str, Any], place: str, words: str, copycat: Callable[..., Done], define: Callable[..., Path]
) -> None:
    path = define(source)
    done = copycat("check", path.parent)
    assert done.returncode == 78
    assert words in done.stderr
    assert f"{path}{place}" in done.stderr


def test_a_secret_option_is_shown_nowhere(copycat: Callable[..., Done], define: Callable[..., Path], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2-hunter2")
    secret.chmod(0o600)
    path = define(of("orders:Orders", {"databse": f"${{file:{secret}}}"}))
    for command in (("check", path.parent), ("plan", path.parent), ("doctor", path.parent), ("try", "-d", path)):
        done = copycat(*command)
        assert "KeyError at orders.py:" in done.stdout + done.stderr
        assert "hunter2" not in done.stdout + done.stderr


def test_try_shows_the_first_records_and_those_that_somebody_wrote_down(
    copycat: Callable[..., Done], define: Callable[..., Path], shop: Shop
) -> None:
    path = define(transforms=[{"rename": {"customer": "who"}}, {"drop_if": {"id": "2"}}])
    shop.add(1, 100)
    done = copycat("try", "-d", path, "-n", 3, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["records"]
    assert [one["fate"] for one in found] == ["sent", "dropped", "sent"]
    written = copycat("try", "-", "-d", path, "--format", "json", stdin='{"id": 7, "customer": "x"}\n')
    assert json.loads(written.stdout)["records"][0]["fate"] == "sent"
    bad = copycat("try", "-", "-d", path, stdin="no JSON\n")
    assert bad.returncode == 1
    assert "line 1 of the sample is no JSON object" in bad.stdout + bad.stderr


def test_a_definition_tests_itself_with_lines_of_json(copycat: Callable[..., Done], define: Callable[..., Path]) -> None:
    case = {"input": '{"id": 1, "customer": "ann"}', "expect": [{"value": {"id": 1, "who": "ann"}}]}
    path = define(transforms=[{"rename": {"customer": "who"}}], tests=[case])
    done = copycat("test", path.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_plan_doctor_and_a_dry_run_look_and_move_nothing(
    copycat: Callable[..., Done], alone: Callable[..., Done], define: Callable[..., Path], shop: Shop, tmp_path: Path
) -> None:
    path = define()
    shop.add(1, 5)
    done = copycat("plan", path.parent)
    assert "app: 1 of 1 partitions have something to read -> orders" in done.stdout, done.stderr
    assert 'orders:Orders: at {"offset":{"id":0}}, there is more [stream]' in done.stdout
    done = copycat("doctor", path.parent)
    assert "orders:Orders: a reader that plans of id bigint, customer string, amount double" in done.stdout
    assert "a first start begins at {'id': 0}, it goes to {'id': 5} now" in done.stdout
    lines, told = tmp_path / "lines", tmp_path / "committed"
    lines.write_text("1\n2\n3\n")
    path = define(of("batches:Lines", {"path": lines, "committed": told}))
    done = alone("run", path.parent, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [json.loads(json.loads(line)["value"])["id"] for line in done.stdout.splitlines()] == [1, 2, 3]
    assert not told.exists(), "nothing is delivered, so the reader is not told that it was"
    done = copycat("explain", lines, path.parent)
    assert "Traceback" not in done.stderr
    assert "reads no files" in done.stdout + done.stderr


def test_offsets_are_shown_set_exported_imported_and_reset(
    copycat: Callable[..., Done], shipping: Shipping, shop: Shop, tmp_path: Path
) -> None:
    source = of("orders:Orders", {"database": shop.path})
    shop.add(1, 20)
    shipping.start(source=source, until_idle=True, deadline=60)
    shipping.wait_idle()
    shipping.stop()
    state = ("--state-dir", shipping.state_dir)
    assert '{"offset":{"id":20}}' in copycat("offsets", "show", "app", *state).stdout
    exported = tmp_path / "offsets.json"
    assert copycat("offsets", "export", "app", "--output", exported, *state).returncode == 0
    wrong = copycat("offsets", "set", "app", "--key", "stream", "--position", "end", *state)
    assert wrong.returncode != 0
    assert """'end' is no JSON value, and stream of app is at {"offset":{"id":20}}""" in wrong.stderr
    done = copycat("offsets", "set", "app", "--key", "stream", "--position", '{"offset": {"id": 15}}', *state)
    assert done.returncode == 0, done.stderr
    assert 'position {"offset":{"id":15}}' in done.stdout
    shipping.start(source=source, until_idle=True, deadline=60)
    shipping.wait_idle()
    shipping.stop()
    assert arrived(shipping.bootstrap, shipping.topic) == [*range(1, 21), *range(16, 21)]
    assert copycat("offsets", "reset", "app", "--yes", *state).returncode == 0
    assert copycat("offsets", "import", "app", exported, *state).returncode == 0
    shop.add(21, 21)
    shipping.start(source=source, until_idle=True, deadline=60)
    shipping.wait_idle()
    assert arrived(shipping.bootstrap, shipping.topic)[-2:] == [20, 21]
