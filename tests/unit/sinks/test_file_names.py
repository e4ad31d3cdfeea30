"""What files are named, and which directories they may be in."""

from __future__ import annotations

import pytest

from copycat_agent.sinks.file_names import FileName, directory_problem, final_keys, parse_name

NAME = FileName("orders.eu-1_x", 12, 0, 2**63 - 1)
STEM = "orders.eu-1_x+12+00000000000000000000+09223372036854775807"


def test_a_name_says_which_offsets_are_in_the_file() -> None:
    assert final_keys(NAME, ["", "dt=2026-01-01/h=1"], "jsonl.gz") == (f"{STEM}.jsonl.gz", f"dt=2026-01-01/h=1/{STEM}.jsonl.gz")


def test_only_files_of_one_directory_are_numbered() -> None:
    assert final_keys(NAME, ["a", "b", "a"], "parquet") == (f"a/{STEM}.0.parquet", f"b/{STEM}.parquet", f"a/{STEM}.1.parquet")


def test_a_name_is_parsed_as_it_was_made() -> None:
    for key in final_keys(NAME, ["", "a+b/c", "a+b/c"], "jsonl.zst"):
        assert parse_name(key) == NAME


@pytest.mark.parametrize("key", ["orders.parquet", "orders+1+2+3.parquet", STEM, f"{STEM}.PARQUET", "a/part-0000.snappy.parquet"])
def test_names_of_others_are_none(key: str) -> None:
    assert parse_name(key) is None


@pytest.mark.parametrize("directory", ["", "orders", "orders/dt=2026-01-01", "ä b/c'd", "a%2Fb", "a.b/c_d", "日本"])
def test_any_text_may_be_a_directory(directory: str) -> None:
    assert directory_problem(directory) == ""


@pytest.mark.parametrize(
    "directory", ["/a", "a/", "a//b", "..", "a/../b", ".", "a\nb", "a\0", "a\x7f", "\udc80", "ä" * 128, "_hidden", "a/.hidden"]
)
def test_a_directory_that_leads_elsewhere_or_is_not_seen_is_a_problem(directory: str) -> None:
    assert directory_problem(directory)
