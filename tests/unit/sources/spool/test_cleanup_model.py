"""Whatever is dropped, cleaned, killed and dropped again: every file is there exactly once, with its own content."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copycat_agent.sources.spool_dir.cleanup.cleaner import FinishedFile
from tests.rig.examples import examples
from tests.unit.sources.spool.cleaning import DAY, Spool, finished, killed_at, without_renameat2

NAMES = st.sampled_from(["x.csv", "a/x.csv", "a/b/x.csv", "x-1.csv", "x.csv.gz", "y"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("drop"), NAMES, st.booleans()),
        st.tuples(st.just("clean"), st.integers(0, 60), st.booleans()),
        st.tuples(st.just("put"), NAMES, st.booleans()),
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, dated=st.booleans(), links=st.booleans(), across=st.booleans())
def test_no_file_is_lost_doubled_or_overwritten(steps: list[tuple[str, object, bool]], dated: bool, links: bool, across: bool) -> None:
    other = "/dev/shm" if across and Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory(dir=other) as there, ExitStack() as held:
        if links:
            held.enter_context(without_renameat2())
        target = Path(there)
        spool = Spool(
            Path(here), policy="move_by_date" if dated else "move", to=f"{target}/fin", failed_to=f"{target}/bad", across_devices="copy",
            keep_directories=False,
        )  # fmt: skip
        expected: Counter[str] = Counter()
        waiting: dict[str, FinishedFile] = {}
        for number, (what, which, flag) in enumerate(steps):
            content = f"content {number}"
            if what == "drop" and not (spool.input / str(which)).exists():
                path = spool.drop(str(which), content, mtime=DAY + 86_400 * (number % 2))
                waiting[content] = finished(path, trouble="broken" if flag else "")
                expected[content] += 1
            elif what == "put":
                path = target / ("bad" if flag else "fin") / str(which)
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(content)
                    expected[content] += 1
            elif what == "clean":
                assert isinstance(which, int)
                with killed_at(which):
                    _mark(waiting, spool)
                if flag:
                    spool.restarted()
        spool.restarted()
        _mark(waiting, spool)
        assert not waiting
        found = Counter(
            path.read_text()
            for root in (spool.root, target)
            for path in root.rglob("*")
            if path.is_file() and not path.name.endswith(".error.json")
        )
        assert found == expected
        assert not list(spool.input.rglob("*"))


def _mark(waiting: dict[str, FinishedFile], spool: Spool) -> None:
    """What a source does: rows whose files are away are rows no more."""
    files = list(waiting.items())
    for (content, _), outcome in zip(files, spool.clean(*(file for _, file in files)), strict=True):
        if outcome.state == "changed":  # killed when it was away already, and another was dropped under its name
            path = Path(waiting[content].path)
            assert not path.exists() or path.stat().st_ino != waiting[content].identity.inode
        else:
            assert outcome.state in ("cleaned", "gone"), outcome
        del waiting[content]
