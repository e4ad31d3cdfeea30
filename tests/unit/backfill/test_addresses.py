"""A backfill of addresses: what is gone, or changes all the time, ends in an account that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from copycat_agent.sources import remote
from copycat_agent.sources.files.reading.remote_objects import list_files, look
from tests.unit.backfill.conftest import by_name

if TYPE_CHECKING:
    import pytest

    from copycat_agent.sources.files.reading.address import Address
    from tests.unit.backfill.conftest import Rig


def test_an_unfinished_file_that_is_gone_when_the_run_goes_on_is_failed(rig: Rig) -> None:
    path, home = rig.write("a.log", *map(str, range(20_000))), rig.root / "own"
    rig.write("b.log", "other")
    rig.interrupt([f"file://{rig.logs}/*"], home)
    path.unlink()
    summary = rig.run([f"file://{rig.logs}/*"], home)
    assert (summary["state"], summary["complete"], summary["files_that_could_not_be_read"]) == ("finished", False, 1)
    files = by_name(summary)
    assert (files["a.log"]["state"], files["b.log"]["state"]) == ("failed", "done")
    assert "it is gone" in files["a.log"]["why"]
    assert 0 < files["a.log"]["read"] < 20_000


def test_a_file_that_grows_all_the_time_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rig.write("a.log", "begin")
    looks = 0

    def grow() -> None:
        with path.open("a") as file:
            file.write("more\n")

    def look_and_grow(address: Address) -> Any:
        nonlocal looks
        looks += 1
        found = look(address)
        grow()
        return found

    def list_and_grow(address: Address) -> Any:
        found = list_files(address)
        grow()
        return found

    monkeypatch.setattr(remote, "look", look_and_grow)
    monkeypatch.setattr(remote, "list_files", list_and_grow)
    summary = rig.run([f"file://{path}"])
    assert looks == remote.MOST_VERSIONS - 1
    assert (summary["state"], summary["complete"]) == ("finished", False)
    assert [file["state"] for file in summary["files"]] == ["failed"]
