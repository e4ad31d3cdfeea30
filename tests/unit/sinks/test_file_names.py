"""What files are named, and what their names say."""

from __future__ import annotations

import pytest

from copycat_agent.sinks.file_names import FileName, final_keys, parse_name

NAME = FileName("orders.eu-1_x", 12, 0, 2**63 - 1)
STEM = "orders.eu-1_x+12+00000000000000000000+09223372036854775807"


def test_a_name_says_which_offsets_are_in_the_file() -> None:
    assert final_keys(NAME, ["", "dt=2026-01-01/h=1"], "jsonl.gz") == (f"{STEM}.jsonl.gz", f"dt=2026-01-01/h=1/{STEM}.jsonl.gz")


def test_only_files_of_one_directory_are_numbered() -> None:
    assert final_keys(NAME, ["a", "b", "a"], "parquet") == (f"a/{STEM}.0.parquet", f"b/{STEM}.parquet", f"a/{STEM}.1.parquet")


@pytest.mark.parametrize(("one", "other"), [("c=DE", "c=de"), ("straße", "STRASSE"), ("caf\u00e9", "cafe\u0301")])
def test_files_of_directories_that_are_one_on_some_file_systems_are_numbered(one: str, other: str) -> None:
    assert final_keys(NAME, [one, "a", other], "avro") == (f"{one}/{STEM}.0.avro", f"a/{STEM}.avro", f"{other}/{STEM}.1.avro")


def test_a_name_is_parsed_as_it_was_made() -> None:
    for key in final_keys(NAME, ["", "a+b/c", "a+b/c"], "jsonl.zst"):
        assert parse_name(key) == NAME


@pytest.mark.parametrize("key", ["orders.parquet", "orders+1+2+3.parquet", STEM, f"{STEM}.PARQUET", "a/part-0000.snappy.parquet"])
def test_names_of_others_are_none(key: str) -> None:
    assert parse_name(key) is None
