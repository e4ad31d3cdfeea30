"""A. Which files are found, and where reading them begins."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.rig.shipping import origin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.shipping import Shipping


def test_interleaved_files_arrive_whole_each_under_its_own_path(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start()
    with (logs_dir / "f1").open("w", buffering=1) as one, (logs_dir / "f2").open("w", buffering=1) as two:
        for number in range(5):
            one.write(f"one {number}\n")
            two.write(f"two {number}\n")
    records = shipping.records(until=10)
    for name, word in (("f1", b"one"), ("f2", b"two")):
        mine = [record.value for record in records if origin(record)[0] == name]
        assert mine == [b"%s %d" % (word, number) for number in range(5)]


def test_exclude_wins_over_include(shipping: Shipping, logs_dir: Path) -> None:
    for name in ("a.txt", "b.txt", "a.log", "a.ignore.txt"):
        (logs_dir / name).write_text(f"{name}\n")
    source = {"include": [f"{logs_dir}/*.txt", f"{logs_dir}/a.*"], "exclude": [f"{logs_dir}/a.*.txt"]}
    shipping.start(source=source)
    shipping.records(until=3)
    shipping.stop()
    assert Counter(shipping.lines()) == Counter(["a.txt", "b.txt", "a.log"])
