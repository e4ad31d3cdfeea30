"""What runs leave on disk, and which files PATHs mean."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from copycat_agent.backfill.path_runs import KEPT_SECONDS, PathRun, PathRuns, choose, finish, give_up, rows_of
from copycat_agent.encoding.window import WindowOptions
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore

FILE = SourcePartition("app", "1:2:3:0")


@pytest.fixture
def runs(tmp_path: Path) -> PathRuns:
    return PathRuns(tmp_path / "state")


def begin(runs: PathRuns, *asked: str) -> PathRun:
    """A run with a store in which one file is half read."""
    with runs.held():
        run = runs.begin(PathRun(Path(), "app", asked, asked))
    with OffsetStore.open(run.directory) as store:
        store.commit({FILE: SourceOffset(7, path="/a/café\udce9")})
    return run


def test_a_run_that_did_not_end_is_found_by_connector_and_paths_in_any_order(runs: PathRuns) -> None:
    run = begin(runs, "/a/x\udce9", "/b")
    assert runs.unfinished("app", ("/b", "/a/x\udce9")) == run
    assert runs.unfinished("app", ("/b",)) is None
    assert runs.unfinished("other", ("/a/x\udce9", "/b")) is None


@pytest.mark.parametrize("given_up", [False, True])
def test_a_run_that_is_over_keeps_its_rows_and_nothing_large(runs: PathRuns, given_up: bool) -> None:
    run = begin(runs, "/a")
    rows = rows_of(run)
    give_up(run) if given_up else finish(run, {"state": "finished"}, rows)
    assert runs.unfinished("app", ("/a",)) is None
    assert not list(run.directory.glob("offsets.db*"))
    assert [(one, offset) for one, offset, _ in runs.rows("app")] == [*rows.items()] == [(FILE, SourceOffset(7, path="/a/café\udce9"))]


@pytest.mark.parametrize(
    ("wanted", "counts"),
    [
        (None, False), ((10, 20, None), True), ((12, 15, None), True), ((5, 15, None), False), ((10, None, None), False),
        ((10, 20, "ts"), False),
    ],
)  # fmt: skip
def test_a_run_over_a_time_counts_only_for_times_within_it(
    runs: PathRuns, wanted: tuple[int, int | None, str | None] | None, counts: bool
) -> None:
    """The other records of its files it has dropped."""
    with runs.held():
        run = runs.begin(PathRun(Path(), "app", ("/a",), ("/a",), since_ms=10, until_ms=20))
    finish(run, {"state": "finished"}, {FILE: SourceOffset(7, path="/a")})
    window = wanted and WindowOptions(since_ms=wanted[0], until_ms=wanted[1], time_field=wanted[2])
    assert [one for one, *_ in runs.rows("app", window)] == [FILE] * counts


def test_old_runs_are_pruned_but_never_one_that_did_not_end(runs: PathRuns) -> None:
    old, unfinished, recent = begin(runs, "/a"), begin(runs, "/b"), begin(runs, "/c")
    for run in (old, recent):
        finish(run, {}, {})
    replace(next(run for run in runs.all() if run.asked == ("/a",)), ended_ms=1).save()
    replace(next(run for run in runs.all() if run.asked == ("/b",)), begun_ms=1).save()
    runs.prune()
    assert KEPT_SECONDS > 0
    assert {run.directory for run in runs.all()} == {unfinished.directory, recent.directory}


def test_what_is_no_run_is_passed_over(runs: PathRuns, tmp_path: Path) -> None:
    begin(runs, "/a")
    strange = tmp_path / "state/backfill/strange"
    strange.mkdir()
    (strange / "run.json").write_text("{")
    assert len(runs.all()) == 1


def test_paths_are_names_patterns_and_directories(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", ".hidden", "deep/c.log", "odd[1].log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    os.mkfifo(tmp_path / "pipe.log")

    def names(*paths: str) -> list[str]:
        return [os.path.relpath(path, tmp_path) for path in choose(f"{tmp_path}/{path}" for path in paths).files]

    assert names("*.log") == ["a.log", "b.log", "odd[1].log"]
    assert names("") == ["a.log", "b.log", "odd[1].log"]
    assert names("**/*.log") == ["a.log", "b.log", "deep/c.log", "odd[1].log"]
    assert names("odd[1].log", "b.log", "b.log") == ["odd[1].log", "b.log"]
    assert names("pipe.log") == ["pipe.log"], "the account says that it cannot be read"


def test_a_path_that_means_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    chosen = choose([f"{tmp_path}/no*", f"{tmp_path}/gone", f"{tmp_path}/empty", "s3://bucket/x"])
    assert (chosen.files, chosen.remote) == ((), ("s3://bucket/x",))
    assert [why.partition(": ")[2].partition(":")[0] for why in chosen.nothing] == [
        "no file matches", "it cannot be found", "there is no file in this directory (for those below it",
    ]  # fmt: skip
