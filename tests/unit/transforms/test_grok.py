"""Promises of the step `grok`: the public sets work as they stand, and what cannot be is said when the definition is loaded."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.options import ValidationError
from copycat_agent.patterns import compile_pattern
from copycat_agent.transforms.grok import expand, pattern_set, translated
from tests.rig.examples import examples
from tests.unit.transforms.steps import after, columns, options

ACCESS = (
    b'83.149.9.216 - ann [24/Feb/2015:23:13:42 +0000] "GET /images/kibana.png HTTP/1.1" 200 203023 '
    b'"http://example.com/a" "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1)"'
)
NOT_PYTHON = {("legacy", "SHOREWALL")}
"""Patterns of the sets that are none: there `(?:...)**` or the like stands, which Ruby takes."""


def test_the_ecs_set_makes_nested_and_typed_fields_and_leaves_out_what_is_not_there() -> None:
    assert after({"grok": "%{COMBINEDAPACHELOG}"}, ACCESS) == {
        "source": {"address": "83.149.9.216"},
        "user": {"name": "ann"},
        "timestamp": "24/Feb/2015:23:13:42 +0000",
        "http": {
            "request": {"method": "GET", "referrer": "http://example.com/a"},
            "version": "1.1",
            "response": {"status_code": 200, "body": {"bytes": 203023}},
        },
        "url": {"original": "/images/kibana.png"},
        "user_agent": {"original": "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1)"},
    }


def test_the_legacy_set_makes_flat_texts() -> None:
    fields = after({"grok": {"pattern": "%{COMBINEDAPACHELOG}", "set": "legacy"}}, ACCESS)
    assert (fields["clientip"], fields["response"], fields["ident"]) == ("83.149.9.216", "200", "-")


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ("%{IP:client.ip} %{NUMBER:n:float}", b"10.0.0.1 1.5", {"client": {"ip": "10.0.0.1"}, "n": 1.5}),
        ("%{IP:[client][ip]} %{INT:n:int}", b"::1 -7", {"client": {"ip": "::1"}, "n": -7}),
        ("%{WORD} %{WORD:second}", b"a b", {"second": "b"}),
        (r"(?<queue>[0-9A-F]{3})\h(?i)x", b"1AFcX", {"queue": "1AF"}),
        (r"^(?<a>[[:alpha:]_]+)-(?<b>[[:digit:][x]]+)\z", b"q_w-1x", {"a": "q_w", "b": "1x"}),
        (r"(?:%{INT:n:int}|%{WORD:w})", b"word", {"w": "word"}),
        (r"(?:a=%{INT:n:int}|b=%{INT:n:int})", b"b=2", {"n": 2}),
        (r"%{WORD:a} %{WORD:a}", b"x y", {"a": "x"}),
        (r"(?<q>['\"])%{WORD:w}\k<q>", b"'abc'", {"q": "'", "w": "abc"}),
        (r"(?m)^%{WORD:a}%{GREEDYDATA:rest}$", b"x\ny", {"a": "x", "rest": "\ny"}),
        (r"(a)(?<n>b)(c)", b"abc", {"n": "b"}),
        ("%{DATA:a}: %{QUOTEDSTRING:b}", rb'x: "a \" b"', {"a": "x", "b": r'"a \" b"'}),
        ("%{NUMBER:n:int}%{GREEDYDATA:[@metadata][x]}", b"12", {"n": 12}),
    ],
)
def test_what_people_write(pattern: str, line: bytes, expected: dict[str, Any]) -> None:
    assert after({"grok": pattern}, line) == expected


def test_own_definitions_come_first_and_may_use_each_other() -> None:
    item = {"grok": {"pattern": "^%{ORDER:order}$", "definitions": {"ORDER": "A%{WORD}", "WORD": "[0-9]+"}}}
    assert after(item, b"A12") == {"order": "A12"}
    with pytest.raises(DataError, match="does not match"):
        after(item, b"Axy")


def test_a_list_is_tried_in_order() -> None:
    item = {"grok": ["^%{INT:n:int}$", "^%{WORD:w}$"]}
    assert [after(item, line) for line in (b"1", b"x")] == [{"n": 1}, {"w": "x"}]
    with pytest.raises(DataError, match="none of the 2 patterns"):
        after(item, b"?")


def test_a_text_that_is_not_of_its_type_is_a_bad_record() -> None:
    with pytest.raises(DataError, match="field 'n': ") as caught:
        after({"grok": "%{WORD:n:int}"}, b"secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("grok", "words"),
    [
        ("%{COMBINDAPACHELOG:x}", r"not known; did you mean %\{COMBINEDAPACHELOG\}"),
        ("%{word:x}", r"did you mean %\{WORD\}"),
        ("%{QQQQQQ:x}", "put it into definitions"),
        ("%{WORD}", "has no field"),
        ("%{WORD:a:date}", "date is no type"),
        ("%{WORD:a b}", r"is not %\{NAME\}"),
        ("%{WORD:[a}", "not a field name"),
        ("%{WORD:a} %{WORD:a.b}", "lies in another field"),
        (r"(?<x>a)\K", r"\\K \(keep\)"),
        (r"(?<x>[a&&b])", "intersection"),
        (r"(?<x>a)\1", "by its number"),
        (r"(?<x>a)\k<y>", "names no group before it"),
        ("(?<x>a", r"\) is missing"),
        ("(?<x>a))", r"a \) too many"),
        ("(?<x>[a", "has no ]"),
        ("(?<x>a*)**", "not a regular expression"),
        (r"(?<x>\p{Greek})", "is not known"),
        ("(?x)(?<x>a)", "has no counterpart"),
        ({"pattern": "%{A:x}", "definitions": {"A": "a%{B}", "B": "b%{A}"}}, "A -> B -> A"),
        ({"pattern": "%{A:x}", "definitions": {"A": "(?<y>"}}, r"%\{A\}: "),
        ({"pattern": "%{A:x}", "definitions": {"A b": "x"}}, "no name of a pattern"),
        (
            {"pattern": "%{A19:x}", "definitions": {"A0": "x" * 9} | {f"A{n}": f"%{{A{n - 1}}}%{{A{n - 1}}}" for n in range(1, 20)}},
            "is larger",
        ),
    ],
)
def test_what_cannot_be_is_said_when_it_is_loaded(grok: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        options({"grok": grok})


def test_its_columns_are_nested_and_typed() -> None:
    found = columns({"grok": "%{IP:client.ip} %{INT:client.port:int} %{NUMBER:t:float}"}, message="string")
    assert found == {"client": "struct<ip: string, port: bigint>", "t": "double"}


@pytest.mark.parametrize("name", ["ecs-v1", "legacy"])
def test_every_pattern_of_the_sets_works(name: str) -> None:
    library = pattern_set(name)
    assert len(library) > 300
    for pattern in library:
        expanded = expand(f"%{{{pattern}}}", library)
        if (name, pattern) in NOT_PYTHON:
            with pytest.raises(ValueError, match="multiple repeat"):
                compile_pattern(expanded.pattern)
        elif len(expanded.pattern) < 800:  # all of them take seconds
            compile_pattern(expanded.pattern)


@pytest.mark.long
@pytest.mark.parametrize("name", ["ecs-v1", "legacy"])
def test_every_pattern_of_the_sets_can_be_compiled(name: str) -> None:
    library = pattern_set(name)
    for pattern in library:
        if (name, pattern) not in NOT_PYTHON:
            compile_pattern(expand(f"%{{{pattern}}}", library).pattern)


def test_the_usual_patterns_cannot_be_held_up() -> None:
    whole = ["%{COMBINEDAPACHELOG}", "%{SYSLOGLINE}", "%{HTTPD_ERRORLOG}", "%{CATALINALOG}"]
    parts = ["%{TIMESTAMP_ISO8601:x}", "%{LOGLEVEL:x}", "%{IPORHOST:x}", "%{QUOTEDSTRING:x}", "%{EMAILADDRESS:x}", "%{PATH:x}"]
    for grok in whole + parts:
        (pattern,) = translated(options({"grok": grok}).grok)
        assert compile_pattern(pattern).doubt == ""


@settings(max_examples=examples(50))
@given(st.binary(max_size=80))
def test_no_line_breaks_it(line: bytes) -> None:
    try:
        fields = after({"grok": "%{COMMONMAC:mac} %{GREEDYDATA:rest}"}, line)
    except DataError:
        return
    assert isinstance(fields, dict)


@given(st.text(alphabet="%{}()[]<>?:\\kAB:xi&|^]*", max_size=20))
def test_no_pattern_breaks_the_loader(pattern: str) -> None:
    with contextlib.suppress(ValidationError):
        options({"grok": {"pattern": pattern, "definitions": {"A": "a", "B": "%{A:b}"}}})
