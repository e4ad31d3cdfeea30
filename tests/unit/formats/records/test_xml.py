"""`xml`: elements at a path are records, from any place, in any blocks, damaged or not."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import LongLine, Parsed, Unparsed
from copycat_agent.formats.records import build_format
from copycat_agent.formats.records.xml_format import XmlFormat, XmlOptions
from copycat_agent.formats.records.xml_tree import MOST_LETTERS, MOST_NAMES
from copycat_agent.options import ValidationError
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, prefixes, read_all, resumes
from tests.unit.formats.records.trees import damaged, form, small_reads

XML = form("xml")
NAMES = st.sampled_from(["a", "b", "row", "größe", "x-1", "n.s"])
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=8).filter(
    lambda text: "\ufffe" not in text and "\uffff" not in text
)
BETWEEN = st.sampled_from(["", "\n", "  ", "<!-- <a> -->", "<?pi x?>"])


@st.composite
def elements(draw: st.DrawFn, depth: int = 2) -> tuple[str, Any, str]:
    """A name, what the element holds as fields, and its text."""
    name, text = draw(NAMES), draw(TEXTS)
    if depth and draw(st.booleans()):
        fields: dict[str, Any] = {}
        inner = ""
        for child, value, written in draw(st.lists(elements(depth - 1), max_size=3)):
            inner += draw(BETWEEN) + written
            known = fields.get(child)
            fields[child] = value if child not in fields else [*known, value] if isinstance(known, list) else [known, value]
        identity = draw(st.none() | TEXTS.map(lambda one: " ".join(one.split())))
        if identity is not None:
            fields = {"_id": identity, **fields}
        attributes = "" if identity is None else f" id={quoteattr(identity)}"
        return name, fields or None, f"<{name}{attributes}>{inner}</{name}>"
    return name, text or None, f"<{name}>{escape(text)}</{name}>" if text else draw(st.sampled_from([f"<{name}/>", f"<{name}></{name}>"]))


@st.composite
def files(draw: st.DrawFn) -> tuple[list[dict[str, Any]], bytes]:
    """Records, and a file that holds them."""
    found = draw(st.lists(elements(), max_size=5))
    values = [{} if value is None else value if isinstance(value, dict) else text_of(value) for _, value, _ in found]
    inner = "".join(draw(BETWEEN) + written + draw(BETWEEN) for _, _, written in found)
    encoding = draw(st.sampled_from(["utf-8", "utf-16"]))
    declared = (
        f'<?xml version="1.0" encoding="{encoding}"?>' if encoding != "utf-8" else draw(st.sampled_from(["", '<?xml version="1.0"?>\n']))
    )
    return values, f"{declared}<root>{inner}</root>{draw(st.sampled_from(['', chr(10)]))}".encode(encoding)


def text_of(text: str) -> dict[str, Any]:
    return {} if text.isspace() else {"#text": text}


@settings(max_examples=examples(60), deadline=None)
@given(files(), st.booleans(), st.sampled_from([1, 5, 30, 4096]))
def test_any_file_holds_its_elements_and_resumes_at_each(file: tuple[list[dict[str, Any]], bytes], packed: bool, size: int) -> None:
    values, data = file
    with small_reads(size):
        reading = resumes(XML, data, packed=packed)
    assert reading.values == values
    assert not reading.damage


@settings(max_examples=examples(80), deadline=None)
@given(damaged(files().map(lambda file: file[1])), st.sampled_from([1, 5, 30, 4096]))
def test_any_bytes_are_records_or_damage_and_the_same_from_each_place(data: bytes, size: int) -> None:
    with small_reads(size):
        resumes(XML, data)


@settings(max_examples=examples(15), deadline=None)
@given(files(), st.data())
def test_a_file_cut_off_holds_no_other_records(file: tuple[list[dict[str, Any]], bytes], data: st.DataObject) -> None:
    prefixes(XML, file[1], data.draw(st.lists(st.integers(0, len(file[1])), max_size=5)))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"<a>t</a>", {"#text": "t"}),
        (b"<a> t </a>", {"#text": " t "}),
        (b"<a/>", {}),
        (b"<a x='1' y='2'/>", {"_x": "1", "_y": "2"}),
        (b"<a x='1'>t</a>", {"_x": "1", "#text": "t"}),
        (b"<a><b>1</b><c/></a>", {"b": "1", "c": None}),
        (b"<a>\n  <b>1</b>\n  <b x='y'>2</b>\n</a>", {"b": ["1", {"_x": "y", "#text": "2"}]}),
        (b"<a><b> </b></a>", {"b": " "}),
        (b"<a>one<b/>two</a>", {"#text": "onetwo", "b": None}),
        (b"<a><![CDATA[<b>&]]></a>", {"#text": "<b>&"}),
        (b"<a>&lt;&#228;&amp;</a>", {"#text": "<ä&"}),
        (b"<a><!-- no --><?pi no?>t</a>", {"#text": "t"}),
        (b"<x:a xmlns:x='u' x:i='1'><x:b>1</x:b></x:a>", {"_i": "1", "b": "1"}),
    ],
)
def test_elements_become_fields(data: bytes, value: dict[str, Any]) -> None:
    reading = resumes(XML, b"<r>" + data + b"</r>")
    assert reading.values == [value]
    (run,) = [frame for frame in reading.frames if isinstance(frame, Parsed)]
    assert run.raw == [data]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/shop/order", [{"item": [{"_id": "1"}, {"_id": "2"}]}]),
        ("item", [{"_id": "1"}, {"_id": "2"}, {"_id": "3"}]),
        ("//item", [{"_id": "1"}, {"_id": "2"}, {"_id": "3"}]),
        ("order/item", [{"_id": "1"}, {"_id": "2"}]),
        ("/shop/*/item", [{"_id": "1"}, {"_id": "2"}]),
        ("x:item", [{"_id": "3"}]),
        ("/item", []),
        ("/shop", [{"order": {"item": [{"_id": "1"}, {"_id": "2"}]}, "item": {"_id": "3"}}]),
    ],
)
def test_a_path_says_which_elements_are_records(path: str, values: list[Any]) -> None:
    data = b"<shop xmlns:x='u'><order><item id='1'/><item id='2'/></order> <x:item id='3'/></shop> "
    assert resumes(form("xml", record=path), data).values == values


@pytest.mark.parametrize("path", ["", "/", "a//b", "/a[1]", "@id", "a b", "a/"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        form("xml", record=path)


def test_named_elements_are_always_lists() -> None:
    reading = read_all(form("xml", lists=("b",)), b"<r><a><b>1</b></a><a><b/><b/></a></r>")
    assert reading.values == [{"b": ["1"]}, {"b": [None, None]}]


@pytest.mark.parametrize(
    ("data", "good", "words"),
    [
        (b"<r><a/>", 1, "not well-formed XML: no element found, at line 1, byte 7"),
        (b"<r><a/>\n<b></a></r>", 1, "not well-formed XML: mismatched tag, at line 2, byte 13"),
        (b"<r><a>1</a><a>2</a", 1, "not well-formed XML: unclosed token, at line 1, byte 15"),
        (b"<r><a/></r><r/>", 1, "not well-formed XML: junk after document element, at line 1, byte 11"),
        (b"no xml", 0, "not well-formed XML: syntax error, at line 1, byte 0"),
        (b'<!DOCTYPE r [<!ENTITY x "y">]><r><a>&x;</a></r>', 0, "it declares entities, which are not read"),
        (b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><r><a>&x;</a></r>', 0, "it declares entities, which are not read"),
        (b'<?xml version="1.0" encoding="shift_jis"?><r/>', 0, "the XML is in an encoding that is not read"),
        (b'<?xml version="1.0" encoding="no-such"?><r/>', 0, "the XML is in an encoding that is not read"),
        (b"<r>" + b"<o>" * 10_000 + b"<o/>", 0, "more than 10000 elements within each other, at byte 30000"),
    ],
)
def test_what_is_not_well_formed_is_damage_behind_the_records_before_it(data: bytes, good: int, words: str) -> None:
    reading = resumes(XML if good else form("xml", record="/r/a"), data, block_bytes=(None, 100))
    assert (len(reading.seen), reading.damage) == (good, words)


def test_an_entity_declared_elsewhere_makes_a_bad_record_not_a_hole_in_a_text() -> None:
    reading = resumes(XML, b'<!DOCTYPE r SYSTEM "r.dtd"><r><a>1 &eur; 2</a><a>3</a></r>')
    assert reading.values == [Unparsed("an entity in it is not declared"), {"#text": "3"}]


def test_deep_nesting_makes_a_bad_record() -> None:
    reading = resumes(XML, b"<r>" + b"<a>" * 100_000 + b"</a>" * 100_000 + b"<b/></r>", block_bytes=(None,))
    assert reading.values == [Unparsed("more than 200 elements within each other"), {}]


def test_a_record_over_the_limit_comes_as_its_head_and_the_others_go_on() -> None:
    data = b"<r><a>" + b"x" * 20_000 + b"</a><b/><a>" + b"<c/>" * 9000 + b"</a><b/></r>"
    reading = resumes(form("xml", max_bytes=10_000), data)
    long = [frame for frame in reading.frames if isinstance(frame, LongLine)]
    assert [(frame.head, frame.start, frame.end) for frame in long] == [(data[3:10_003], 3, 20_010), (data[20_014:30_014], 20_014, 56_021)]
    assert [value for value in reading.values if isinstance(value, dict)] == [{}, {}]


def test_a_comment_without_end_is_damage_not_memory() -> None:
    reading = read_all(form("xml", max_bytes=1000), b"<r><a/><!-- " + b"x" * 2_000_000, block_bytes=4096)
    assert (reading.values, reading.damage) == ([{}], "a tag or a comment is longer than max_bytes, at byte 7")
    assert reading.file.furthest < 20_000


def test_the_next_batch_goes_on_with_the_parser_and_a_kill_begins_anew() -> None:
    data = b"<r>" + b"".join(b"<row><n>%d</n></row>\n" % number for number in range(30_000)) + b"</r>"
    file, place, found = Bytes(data), 0, list[Any]()
    while place < len(data):  # batches that end behind one run each
        frame = next(iter(XML.frames(file, place, len(data), block_bytes=4096)))
        found += frame.values if isinstance(frame, Parsed) else []
        place = frame.end
    assert [value["n"] for value in found] == [str(number) for number in range(30_000)]
    assert file.read_bytes < 2 * len(data)
    half = found.index({"n": "15000"})
    assert len(read_all(XML, data, start=data.index(b"<row><n>15000<")).values) == len(found) - half


def test_two_readings_of_one_file_do_not_disturb_each_other() -> None:
    data = b"<r>" + b"".join(b"<row><n>%d</n></row>" % number for number in range(3000)) + b"</r>"
    whole = read_all(XML, data).seen
    file = Bytes(data)
    first = iter(XML.frames(file, 0, len(data), block_bytes=4096))
    frames = [next(first), next(first)]
    again = list(XML.frames(file, frames[1].start, len(data), block_bytes=4096))  # as what is sent once more
    rest = list(first)
    for others in (again, rest):
        assert others[-1].end == len(data)
    assert sum(frame.total for frame in again if isinstance(frame, Parsed)) == len(whole)
    assert sum(frame.total for frame in [*frames, *rest] if isinstance(frame, Parsed)) == len(whole)


def test_types_are_read() -> None:
    typed = form("xml", types={"price": "decimal", "_id": "int"})
    reading = read_all(typed, b"<r><a id='7'><price>1.10</price></a><a><price>free</price></a></r>")
    assert reading.values[0] == {"_id": 7, "price": Decimal("1.10")}
    assert reading.bad[0].why.startswith("field 'price': ")


def test_a_look_at_the_beginning_shows_whole_records_only() -> None:
    data = b"<r>\n<a>1</a> <a>2</a><!-- x --><a>3</a></r>"
    for end in range(len(data) + 1):
        frames = [frame for frame in XML.frames(Bytes(data), 0, end, final=False) if isinstance(frame, Parsed)]
        found = [value["#text"] for frame in frames for value in frame.values if isinstance(value, dict)]
        assert found == ["1", "2", "3"][: data[:end].count(b"</a>")]


def test_a_record_is_read_by_itself_for_a_replay() -> None:
    one = build_format(XmlOptions(record="/orders/order", types={"_id": "int"}))
    assert isinstance(one, XmlFormat)
    assert one.alone(b"<x:order id='7'><item/></x:order>", ()) == {"_id": 7, "item": None}
    assert isinstance(one.alone(b"<order", ()), Unparsed)


@pytest.mark.parametrize(("rows", "most"), [((f"<q{n} a{n}=''/>" for n in range(MOST_NAMES)), MOST_NAMES // 2),
                                            ((f"<{'q' * 2**19}{n}/>" for n in range(40)), MOST_LETTERS // 2**19)])  # fmt: skip
def test_names_that_are_data_are_damage_once_they_are_too_many_and_records_before_come(rows: Iterator[str], most: int) -> None:
    found = read_all(XML, f"<r>{''.join(rows)}</r>".encode())
    assert 0.9 * most <= len(found.values) <= most + 5000
    assert "different names of elements and attributes" in found.damage
