"""What a definition names in the file system, as the agent's user would meet it."""

from __future__ import annotations

import os
import pwd
import struct
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import CopycatError
from copycat_agent.mountinfo import Mount, mounts
from copycat_agent.options import Definition
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.workbench.doctor import CheckVerdict, User, find_user
from copycat_agent.workbench.doctor.file_checks import examine_files, examine_secrets, examine_shared
from copycat_agent.workbench.doctor.steps import Notes
from copycat_agent.workbench.doctor.users import mount_of

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = User("somebody", 64_321, frozenset({64_321}), is_current=False)
ME = find_user(None)


def definition(logs: Path, name: str = "app", topic: str = "t", **source: Any) -> Definition:
    options = LogFileOptions.model_validate({"type": "log_file", "include": (f"{logs}/*.log",), **source})
    return Definition.model_validate({"name": name, "source": options, "record": {"topic": topic}})


def look(one: Definition, user: User = ME, mounted: list[Mount] | None = None) -> Notes:
    notes = Notes("connector app")
    examine_files(notes, one, user, mounted or [])
    return notes


def bad(notes: Notes) -> list[str]:
    return [step.name for step in notes.steps if step.verdict in (CheckVerdict.FAIL, CheckVerdict.WARN)]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory that everybody may look into, however the tests' own is closed."""
    directory = tmp_path / "logs"
    directory.mkdir(mode=0o755)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent.stat().st_mode & 0o001 == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    return directory


def test_files_that_may_be_read_are_good(logs: Path) -> None:
    (logs / "a.log").write_text("a\n")
    notes = look(definition(logs))
    assert bad(notes) == []
    assert "1 file, 2 bytes" in [step.text for step in notes.steps]


def test_files_that_are_to_be_deleted_have_to_be_ones_own_in_a_directory_that_is_writable(logs: Path) -> None:
    (logs / "a.log").write_text("a\n")
    cleanup = {"policy": "delete"}
    assert bad(look(definition(logs, cleanup=cleanup))) == []
    assert bad(look(definition(logs), NOBODY)) == []
    step = next(step for step in look(definition(logs, cleanup=cleanup), NOBODY).steps if step.name == "cleanup")
    assert (step.verdict, step.text) == (CheckVerdict.FAIL, f"user somebody may not delete files in {logs}")
    logs.chmod(0o777)
    step = next(step for step in look(definition(logs, cleanup=cleanup), NOBODY).steps if step.name == "cleanup")
    assert step.verdict is CheckVerdict.WARN
    assert "CAP_LEASE" in step.fix


def test_a_file_that_the_agents_user_may_not_read_comes_with_the_acl_that_lets_it(logs: Path) -> None:
    (logs / "a.log").write_text("a\n")
    (logs / "a.log").chmod(0o600)
    notes = look(definition(logs), NOBODY)
    assert bad(notes) == ["reading"]
    step = next(step for step in notes.steps if step.name == "reading")
    assert f"setfacl -m u:somebody:r {logs}/a.log" in step.fix
    assert f"setfacl -d -m u:somebody:rX {logs}" in step.fix, "what a rotation creates has to be readable too"
    (logs / "a.log").chmod(0o604)
    assert bad(look(definition(logs), NOBODY)) == []


def test_where_the_group_may_read_joining_it_is_the_fix(logs: Path) -> None:
    group = next(entry for entry in (pwd.getpwall()) if entry.pw_gid).pw_gid
    (logs / "a.log").write_text("a\n")
    if os.getuid() != 0:
        pytest.skip("giving a file to another group needs root")
    os.chown(logs / "a.log", 0, group)
    (logs / "a.log").chmod(0o640)
    step = next(step for step in look(definition(logs), NOBODY).steps if step.name == "reading")
    assert step.fix.startswith("usermod -aG ")
    assert "SupplementaryGroups=" in step.fix
    member = User("somebody", 64_321, frozenset({group}), is_current=False)
    assert bad(look(definition(logs), member)) == []


def test_a_directory_above_that_is_closed_is_named_itself(logs: Path) -> None:
    inner = logs / "inner"
    inner.mkdir(0o755)
    (inner / "a.log").write_text("a\n")
    logs.chmod(0o700)
    step = next(step for step in look(definition(inner), NOBODY).steps if step.name == "directories")
    assert step.verdict is CheckVerdict.FAIL
    assert step.fix == f"setfacl -m u:somebody:x {logs}"


@pytest.mark.parametrize(
    ("entries", "allowed"),
    [
        ([(2, 4, 64_321)], True),  # a named user
        ([(2, 0, 64_321)], False),
        ([(8, 4, 64_321)], True),  # a named group
        ([(8, 4, 99_999)], False),
    ],
)
def test_acls_count_as_the_kernel_counts_them(logs: Path, entries: list[tuple[int, int, int]], allowed: bool) -> None:
    path = logs / "a.log"
    path.write_text("a\n")
    path.chmod(0o600)
    nobody = 0xFFFFFFFF
    whole = [(1, 6, nobody), *entries, (4, 0, nobody), (16, 4, nobody), (32, 0, nobody)]
    try:
        os.setxattr(
            path, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in sorted(whole))
        )
    except OSError:
        pytest.skip("this file system has no ACLs")
    assert NOBODY.may(str(path), "r") is allowed


def test_the_kernels_own_verdict_is_taken_for_who_asks(logs: Path) -> None:
    (logs / "a.log").write_text("a\n")
    assert ME.may(str(logs / "a.log"), "r")
    assert not ME.may(str(logs / "missing"), "r")


def test_a_user_that_is_not_there_is_said_with_the_way_to_make_it() -> None:
    with pytest.raises(CopycatError, match="there is no user no-such-user; create it: useradd"):
        find_user("no-such-user")


def test_patterns_without_files_and_without_directories_are_warnings(logs: Path) -> None:
    notes = look(definition(logs, include=(f"{logs}/*.log", f"{logs}/none/*.log")))
    assert bad(notes) == ["directories", "patterns"]
    assert f"{logs}/none is not there" in notes.steps[0].text


def test_what_matches_and_is_no_regular_file_is_told(logs: Path) -> None:
    os.mkfifo(logs / "pipe.log")
    (logs / "link.log").symlink_to("/etc/hostname")
    texts = [step.text for step in look(definition(logs)).steps if step.name == "passed over"]
    assert sorted(texts) == [f"{logs}/link.log: is a symbolic link", f"{logs}/pipe.log: is not a regular file"]


def test_links_that_lead_out_are_told_together_with_the_option_that_lets_them(logs: Path) -> None:
    for name in ("one", "two"):
        (logs / f"{name}.log").symlink_to("/etc/hostname")
    odd = [step for step in look(definition(logs, follow_symlinks=True)).steps if step.name == "passed over"]
    assert [(step.text, step.fix) for step in odd] == [
        (
            f"{logs}/one.log, {logs}/two.log: leads to /etc/hostname, beyond where the patterns begin",
            "to read it, list a directory above it in symlink_roots",
        )
    ]
    allowed = look(definition(logs, follow_symlinks=True, symlink_roots=("/etc",))).steps
    assert not [step for step in allowed if step.name == "passed over"]


def test_compressed_files_that_match_and_rotated_ones_that_do_not(logs: Path) -> None:
    for name in ("a.log", "a.log.1", "b.gz", "c.tar.gz", "d.zip"):
        (logs / name).write_text("x\n")
    include = (f"{logs}/*.log", f"{logs}/*.gz", f"{logs}/*.zip")
    plain = look(definition(logs, include=include, compression="none"))
    assert next(step for step in plain.steps if step.name == "compressed").fix == "exclude: ['*.gz', '*.zip']"
    notes = look(definition(logs, include=include))
    assert bad(notes) == ["compressed"]
    step = next(step for step in notes.steps if step.name == "compressed")
    assert ("c.tar.gz" in step.text, "d.zip" in step.text, "b.gz" in step.text) == (True, True, False)
    assert f"{logs}/a.log.1" in next(step for step in notes.steps if step.name == "rotated").text


def test_a_file_system_that_tells_nothing_asks_for_polling(logs: Path) -> None:
    mounted = [Mount("/", "ext4", frozenset()), Mount(str(logs), "nfs4", frozenset())]
    step = next(step for step in look(definition(logs), mounted=mounted).steps if step.name == "events")
    assert (step.verdict, "watch: poll" in step.fix) == ("warn", True)
    assert bad(look(definition(logs, watch="poll"), mounted=mounted)) == ["patterns"]


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    text = (
        "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "30 21 0:40 / /mnt/a\\040b rw,noexec shared:5 - nfs4 host:/export rw,vers=4\n"
        "31 21 0:41 / /mnt ro master:1 - fuse.sshfs me@host rw\n"
    )
    found = mounts(text)
    assert [(one.point, one.kind) for one in found] == [("/", "ext4"), ("/mnt/a b", "nfs4"), ("/mnt", "fuse.sshfs")]
    assert {"noexec", "vers=4"} <= found[1].options
    assert [mount_of(path, found) for path in ("/mnt/a b/c", "/mnt/x", "/mntx", "/")] == [found[1], found[2], found[0], found[0]]
    assert [one.is_silent for one in found] == [False, True, True]


def test_a_file_of_two_connectors_is_a_warning_when_it_arrives_twice(logs: Path) -> None:
    (logs / "a.log").write_text("a\n")
    seen, notes = {}, {}
    for name, topic in (("one", "t"), ("twin", "t"), ("other", "u")):
        notes[name] = Notes(f"connector {name}")
        one = definition(logs, name, topic)
        seen[name] = one, examine_files(notes[name], one, ME, [])
    examine_shared(seen, notes)
    assert [bad(notes[name]) for name in notes] == [[], ["shared"], []]
    assert "read by one too, into t" in next(step.text for step in notes["other"].steps if step.name == "shared")


def test_files_of_secrets_have_to_be_readable_for_the_agents_user_and_are_not_shown(logs: Path) -> None:
    secret = logs / "password"
    secret.write_text("do not show\n")
    secret.chmod(0o600)
    path = logs / "app.yaml"
    path.write_text(f"kafka: {{security: {{password: '${{file:{secret}}}'}}}}\n")
    notes = Notes("connector app")
    examine_secrets(notes, path, definition(logs), NOBODY, None)
    (step,) = notes.steps
    assert (step.verdict, step.fix) == ("fail", f"setfacl -m u:somebody:r {secret}")
    assert "do not show" not in str(step)
    secret.chmod(0o644)
    examine_secrets(notes, path, definition(logs), NOBODY, None)
    assert notes.steps[-1].verdict is CheckVerdict.OK


def test_credentials_are_judged_for_who_asks_and_not_for_a_service_that_gets_them_of_systemd(logs: Path) -> None:
    path = logs / "app.yaml"
    path.write_text("kafka: {security: {password: '${cred:kafka_password}'}}\n")
    for user, verdict in ((NOBODY, CheckVerdict.OK), (ME, CheckVerdict.FAIL)):
        notes = Notes("connector app")
        examine_secrets(notes, path, definition(logs), user, str(logs / "credentials"))
        assert [step.verdict for step in notes.steps] == [verdict]
