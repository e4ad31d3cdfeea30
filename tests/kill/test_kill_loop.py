"""`benchmarks/run kill_loop`: what it plans is what it promises, and it can tell a kept promise from a broken one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import kill_loop_totals
from benchmarks.kill_loop_findings import Findings, Struck, restored, values
from benchmarks.kill_loop_plan import ROUND, places, planned, spelled, window
from benchmarks.kill_loop_report import recovery, result, text
from copycat_agent.failpoints import NAMES
from tests.rig.journals import MISSING

PROJECT = Path(__file__).parents[2]
PLAN = [planned(7, number) for number in range(1000)]
VIEW = {"delivered": 9, "lost": 0, "phantom": 0, "corrupt": 0}
VERDICT: dict[str, Any] = {"written": 9, "duplicated": 0, "reordered": 0, "aborted": 0, "examples": [], "uncommitted": VIEW, **VIEW}
ASKED = {"guarantee": "exactly_once", "seed": 7, "caption": "", "minutes_taken": 1.0, "rotations": 0}


def test_a_plan_is_the_same_for_a_seed_and_another_for_another() -> None:
    assert [planned(7, number) for number in range(1000)] == PLAN
    assert [planned(8, number) for number in range(1000)] != PLAN


def test_a_thousand_kills_have_the_promised_shares() -> None:
    victims = Counter(kill.victim for kill in PLAN)
    for victim, share in Counter(ROUND).items():
        assert abs(victims[victim] / 1000 - share / len(ROUND)) < 0.03
    moments = Counter(kill.moment for kill in PLAN)
    assert abs(moments["start"] / 1000 - 0.3) < 0.05
    assert moments["failpoint"] > 5 * 2 * len(NAMES)


def test_every_failpoint_is_one_of_the_drivers_or_of_a_tasks() -> None:
    both = [*places("driver", "exactly_once"), *places("worker", "exactly_once")]
    files = places("worker", "exactly_once", into_files=True)
    assert sorted([*both, *files]) == sorted(NAMES)
    assert set(places("driver", "at_least_once")) < set(both)
    assert [spelled("start", 8), spelled("saved", 8), window("saved")] == ["start:1", "saved:8", "W7"]


def test_what_was_done_is_gone_on_with() -> None:
    findings = Findings([Struck(1, "driver", "failpoint", 1.0, "saved", fired=True, seconds=2.5)], planned=3)
    findings.misses["moved"] += 1
    assert restored(json.loads(json.dumps(values(findings)))) == findings


@pytest.mark.parametrize(
    ("harm", "once", "at_least"),
    [
        ({}, True, True),
        ({"duplicated": 1}, False, True),
        ({"lost": 1}, False, False),
        ({"reordered": 1}, False, False),
        ({"uncommitted": {**VIEW, "phantom": 1}}, False, False),
    ],
)
def test_the_guarantee_decides_what_is_a_broken_promise(harm: dict[str, Any], once: bool, at_least: bool) -> None:
    found = [result({**VERDICT, **harm}, Findings(), {**ASKED, "guarantee": name})["kept"] for name in ("exactly_once", "at_least_once")]
    assert found == [once, at_least]
    assert not result(VERDICT, Findings(broken=["a process survived"]), ASKED)["kept"]


def test_the_report_names_windows_and_recovery() -> None:
    struck = [Struck(n, "driver", "failpoint", 1.0, "saved", fired=True, seconds=float(n)) for n in range(1, 6)]
    told = result(VERDICT, Findings(struck), ASKED)
    assert (told["windows"], told["recovery_seconds"]) == ({"W7": 5}, {"count": 5, "median": 3.0, "p95": 5.0, "max": 5.0})
    assert "| W7 | 5 | saved 5 |" in text(told)
    assert recovery([None]) == {"count": 0}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_few_kills_keep_the_promise(tmp_path: Path, guarantee: str) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.kill_loop_main",
        "--guarantee",
        guarantee,
        "--seed",
        "1",
        "--totals",
        str(tmp_path / "totals"),
    ]
    for kills, all_kills in (("6", 6), ("4", 10)):  # the second goes on where the first ended
        more = ["--kills", kills, "--directory", str(tmp_path / "work"), "--json", str(tmp_path / "told")]
        done = subprocess.run([*command, *more], cwd=PROJECT, check=False)
        told = json.loads((tmp_path / "told").read_text())
        assert (done.returncode, told["kept"], told["kills"] >= all_kills) == (0, True, True), told
    (run,) = json.loads((tmp_path / "totals/totals.json").read_text())["runs"].values()
    assert (sum(run["kills"].values()), run["ended"], set(run["sources"])) == (told["kills"], True, {"logs", "drops", "rows", "replayed"})
    assert sum(one["lines"] for one in run["sources"].values()) == told["verdict"]["written"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("journald", marks=pytest.mark.skipif(bool(MISSING), reason=MISSING or "there are journals")),
        "objects",
        "jdbc",
        "kafka",
        "lake",
        "lake-s3",
        "lake-hdfs",
    ],
)
def test_a_few_kills_keep_the_promise_of_other_sources(tmp_path: Path, source: str, guarantee: str) -> None:
    command = [sys.executable, "-m", "benchmarks.kill_loop_main", "--source", source, "--guarantee", guarantee, "--seed", "1"]
    more = ["--kills", "8", "--totals", str(tmp_path / "totals"), "--json", str(tmp_path / "told")]
    done = subprocess.run([*command, *more], cwd=PROJECT, check=False)
    told = json.loads((tmp_path / "told").read_text())
    assert (done.returncode, told["kept"]) == (0, True), told


def said(guarantee: str, kills: int, *, ended: bool = True, lost: int = 0) -> dict[str, Any]:
    sources = {"logs": {"lines": 100, "lost": lost, "repeated": 2, "out of order": 0}, "rows": {"lines": 10, "repeated": 0}}
    return kill_loop_totals.snapshot(guarantee, Counter({"driver": kills}), sources, [], ended=ended)


def test_totals_add_up_the_last_word_of_each_run_per_guarantee_and_source(tmp_path: Path) -> None:
    totals = kill_loop_totals.Totals(tmp_path, "code")
    for kills in (1, 2, 3):
        totals.put("first", said("exactly_once", kills, ended=False))
    totals.put("other", said("at_least_once", 7))
    runs = kill_loop_totals.Totals(tmp_path, "code").put("second", said("exactly_once", 4, lost=1))
    assert kill_loop_totals.line(runs) == (
        "at_least_once: 7 kills, 110 lines, 0 lost, 2 repeated, 0 out of order, broken 0; "
        "exactly_once: 7 kills, 220 lines, 1 lost, 4 repeated, 0 out of order, broken 0"
    )
    told = kill_loop_totals.text(runs, "code")
    assert "| exactly_once | logs | 7 | 200 | 1 | 4 | 0 |\n| exactly_once | rows | 7 | 20 | 0 | 0 | 0 |" in told
    assert "exactly_once: driver 7; 2 runs, 1 without an end; broken 0." in told


def test_totals_are_those_of_one_state_of_the_code(tmp_path: Path) -> None:
    kill_loop_totals.Totals(tmp_path, "code").put("first", said("exactly_once", 3))
    assert set(kill_loop_totals.Totals(tmp_path, "changed").put("second", said("exactly_once", 1))) == {"second"}
    product = tmp_path / "product"
    product.mkdir()
    seen = set()
    for name, data in (("a.py", "1"), ("a.py", "2"), ("a.py", "'''Says why.'''\n2  # two"), ("b.py", "2"), ("b.txt", "3")):
        (product / name).write_text(data)
        seen.add(kill_loop_totals.code_hash(product))
    assert len(seen) == 3


def test_loops_side_by_side_add_to_the_same_totals(tmp_path: Path) -> None:
    def loop(name: str) -> None:
        for kills in range(1, 31):
            kill_loop_totals.Totals(tmp_path, "code").put(name, said("exactly_once", kills))

    threads = [threading.Thread(target=loop, args=(name,)) for name in "abcd"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    runs = kill_loop_totals.Totals(tmp_path, "code").put("last", said("exactly_once", 1))
    assert kill_loop_totals.added(runs)["exactly_once"]["kills"] == {"driver": 121}
