"""The parts of docs/examples keep what the agent asks of its own: the format resumes at every record, the others do as they say."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.formats import Unparsed
from copycat_agent.options import ValidationError
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms import Draft
from tests.unit.formats.records.rig import read_all, resumes

EXAMPLE = Path(__file__).parents[2] / "docs/examples/copycat-extras"


@pytest.fixture(scope="module")
def part() -> Iterator[Any]:
    """`part("stanzas")`: a module of the example package."""
    sys.path.insert(0, str(EXAMPLE))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    yield lambda name: importlib.import_module(f"copycat_extras.{name}")
    sys.path.remove(str(EXAMPLE))
    sys.dont_write_bytecode = before
    for name in [name for name in sys.modules if name.startswith("copycat_extras")]:
        del sys.modules[name]


def form(part: Any, **options: Any) -> Any:
    kind = part("stanzas").STANZAS
    return kind.build(kind.options.model_validate({"type": "stanzas", **options}))


def test_stanzas_are_read_and_resumed(part: Any) -> None:
    data = b"\n\nMail: ann\nNote: a: b\n\nMail: bob\n\n\n\n\nno colon\n\n\nMail:\n"
    reading = resumes(form(part, lower_case=True), data)
    assert reading.values == [{"mail": "ann", "note": "a: b"}, {"mail": "bob"}, Unparsed("a line of the block has no colon"), {"mail": ""}]
    assert reading.end == len(data)


@given(st.text(alphabet="a:\n", max_size=40))
def test_any_text_is_read_to_its_end(part: Any, text: str) -> None:
    reading = resumes(form(part), text.encode())
    assert reading.end == len(text)
    assert read_all(form(part), text.encode(), block_bytes=1).seen == reading.seen


def test_shorten(part: Any) -> None:
    kind = part("shorten").SHORTEN
    step = kind.build(kind.options.model_validate({"shorten": {"a": 2, "u.b": 1, "gone": 1}})).bind(SplitMeta("/f", 1, "h", "c"))
    record = Draft({"a": "xyz", "u": {"b": "pq"}, "gone": None})
    assert step(record) is True
    assert record.value == {"a": "xy", "u": {"b": "p"}, "gone": None}
    with pytest.raises(DataError, match="field 'a' is not a text"):
        step(Draft({"a": 12345}))
    with pytest.raises(ValidationError, match="at least 1"):
        kind.options.model_validate({"shorten": {"a": 0}})


def test_tsv(part: Any) -> None:
    kind = part("tsv").TSV
    convert = kind.build(kind.options.model_validate({"type": "tsv", "fields": ("a", "u.b", "gone")}), None)
    assert convert({"a": "x\ty\n\\", "u": {"b": 7}}) == b"x\\ty\\n\\\\\t7\t"
    with pytest.raises(DataError):
        convert(b"line")


def test_pod_logs_are_log_files(part: Any) -> None:
    module = part("pod_logs")
    options = module.PodLogsOptions.model_validate({"type": "pod_logs", "namespace": "pay"})
    assert module.as_log_file(options).include == ("/var/log/pods/pay_*/*/*.log",)
    with pytest.raises(ValidationError):
        module.PodLogsOptions.model_validate({"type": "pod_logs", "namespace": "../etc"})
