"""Promises of `logfmt` and `key_value`: each pair becomes a field, and a text that is no pairs is a DataError that does not show it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.options import ValidationError
from copycat_agent.transforms import StepError
from copycat_agent.transforms.key_value import KeyValueParse, _plain, _quoted, _QuotedPairs
from tests.unit.transforms.steps import after, columns, draft, options, step

LOGFMT: dict[str, Any] = {"logfmt": {}}


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("level=info msg=hello status=200", {"level": "info", "msg": "hello", "status": "200"}),
        ('msg="two words" a=1', {"msg": "two words", "a": "1"}),
        (r'msg="a \"b\" \\ \n \t \/ é \ud83d\ude00" a=1', {"msg": 'a "b" \\ \n \t / é 😀', "a": "1"}),
        (r'msg="\ud800x \udc00"', {"msg": "\ufffdx \ufffd"}),
        ("flag a= b", {"flag": True, "a": "", "b": True}),
        ('a="" b=""', {"a": "", "b": ""}),
        ("path=/x?a=b&c=d", {"path": "/x?a=b&c=d"}),
        ("  a=1\t\tb=2  \r", {"a": "1", "b": "2"}),
        ("a=1 a=2", {"a": "2"}),
        ("küche=heiß schön", {"küche": "heiß", "schön": True}),
        ('a="x\ny"', {"a": "x\ny"}),
        (r"path=C:\temp", {"path": r"C:\temp"}),
        ("a.b=1 @c=2 d-e=3", {"a.b": "1", "@c": "2", "d-e": "3"}),
    ],
)
def test_logfmt(line: str, fields: dict[str, Any]) -> None:
    assert after(LOGFMT, line.encode()) == fields


@pytest.mark.parametrize(
    "line",
    [
        "",
        "secret words only",
        "=secret",
        'a="secret',
        'a="secret"b',
        'a=sec"ret',
        '"secret"=a',
        'secret"a=1',
        "a =secret",
        'a="secret\\"',
        "a=1 =secret",
    ],
)
def test_what_is_no_logfmt(line: str) -> None:
    with pytest.raises(StepError, match="not logfmt") as caught:
        step(LOGFMT)(draft(line.encode()))
    assert "secret" not in str(caught.value)


KEYS = st.text(st.characters(exclude_characters='="\x7f', exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)


@given(st.dictionaries(KEYS, st.text(st.characters(codec="utf-8")), min_size=1, max_size=6))
def test_what_is_quoted_as_json_is_read_back(fields: dict[str, str]) -> None:
    line = " ".join(f"{key}={json.dumps(value)}" for key, value in fields.items())
    assert after(LOGFMT, line.encode()) == fields


@given(st.text('ab="\\ \t\nu0d8', max_size=40))
@example('a="' + "\\" * 39)
def test_any_text_is_logfmt_or_a_data_error(line: str) -> None:
    try:
        found = after(LOGFMT, line.encode())
    except DataError:
        return
    assert found
    assert all(key and not set(key) & set('=" \t\n') for key in found)


@pytest.mark.parametrize(
    "line", ['a="' + "\\" * 200_000, "a" * 200_000 + "=", 'a="' + "x" * 200_000, "= " * 100_000, 'a=" ' * 50_000], ids=range(5)
)
def test_a_long_line_takes_no_time(line: str) -> None:
    """Quadratic work would take minutes here, and the time-out of the test."""
    for item in (LOGFMT, {"key_value": {"bare": "flag"}}, {"key_value": {"field_split": ", ", "quote": "\"'", "bare": "flag"}}):
        with suppress(DataError):
            after(item, line.encode())


@pytest.mark.parametrize(
    ("line", "parse", "fields"),
    [
        ("a=1 b=2", {}, {"a": "1", "b": "2"}),
        ("a=1   b=x=y", {}, {"a": "1", "b": "x=y"}),
        ("a:1|b:2|", {"field_split": "|", "value_split": ":"}, {"a": "1", "b": "2"}),
        ("a = 1 ; b = two words ;", {"field_split": ";"}, {"a": "1", "b": "two words"}),
        ("a = 1 ; b = two words", {"field_split": ";", "trim": ""}, {"a ": " 1 ", " b ": " two words"}),
        ("<a>=<1>;<b>=<2>", {"field_split": ";", "trim": "<>"}, {"a": "1", "b": "2"}),
        ('user="ann b" ip=1', {}, {"user": "ann b", "ip": "1"}),
        ("user='ann, b', ip=1", {"field_split": ", ", "quote": "\"'"}, {"user": "ann, b", "ip": "1"}),
        ("user='ann; b' ; ip=1", {"field_split": ";", "quote": "'"}, {"user": "ann; b", "ip": "1"}),
        (r'a="x \" y" b=1', {}, {"a": 'x " y', "b": "1"}),
        (r'a="x \\" b=1', {}, {"a": "x \\", "b": "1"}),
        (r'a="x \" b=1', {"escape": ""}, {"a": "x \\", "b": "1"}),
        ('a="" b=""', {}, {"a": "", "b": ""}),
        ("a= b=1", {}, {"a": "", "b": "1"}),
        ('a="1" b="2"', {"quote": "none"}, {"a": '"1"', "b": '"2"'}),
        ('a=x"y b=1', {}, {"a": 'x"y', "b": "1"}),
        ("a=1 b=2", {"prefix": "kv_"}, {"kv_a": "1", "kv_b": "2"}),
        ("a=1 a=2 a=3", {}, {"a": "3"}),
        ("a=1 a=2 a=3", {"duplicates": "first"}, {"a": "1"}),
        ("a=1 a=2 a=3 b=4", {"duplicates": "list"}, {"a": ["1", "2", "3"], "b": "4"}),
        ("word a=1", {"bare": "flag"}, {"word": True, "a": "1"}),
        ("some words a=1 more", {"bare": "drop"}, {"a": "1"}),
        ("a=>1 && b=>2", {"field_split": " && ", "value_split": "=>"}, {"a": "1", "b": "2"}),
        ("a\t1\nb\t2", {"field_split": "\n", "value_split": "\t"}, {"a": "1", "b": "2"}),
        ("a1b2", {"field_split": "b", "value_split": "1", "bare": "flag"}, {"a": "", "2": True}),
    ],
)
def test_key_value(line: str, parse: dict[str, Any], fields: dict[str, Any]) -> None:
    assert after({"key_value": parse}, line.encode()) == fields


@pytest.mark.parametrize(
    ("line", "parse", "why"),
    [
        ("", {}, "there are none"),
        ("  ", {}, "there are none"),
        ("secret", {"bare": "drop"}, "there are none"),
        ("secret a=1", {}, "a part of it is none"),
        ('secret a="1"', {}, "a part of it is none"),
        ("a=1 =secret", {}, "no key"),
        ('a=1 ="secret"', {}, "no key"),
        ('a="secret', {}, "opened at character 2 and not closed"),
        ('a="secret"b=1', {}, "follows the closing quote, at character 10"),
        ("a=1 a=secret", {"duplicates": "error"}, "there twice"),
    ],
)
def test_what_is_no_key_value(line: str, parse: dict[str, Any], why: str) -> None:
    with pytest.raises(StepError, match=why) as caught:
        step({"key_value": parse})(draft(line.encode()))
    assert "secret" not in str(caught.value)


SIGNS = st.sampled_from([" ", ";", ",", "|", "\t", "]", "^", "-"])


@given(
    st.text("ab=:;,\"' \t\\|]^-", max_size=30),
    SIGNS,
    st.sampled_from("=:^]-"),
    st.sampled_from(["", " \t", "-b"]),
    st.sampled_from(["", "\\"]),
)
@example('a= "b c"', " ", "=", " \t", "\\")
def test_the_fast_ways_find_what_the_exact_one_finds(text: str, field_split: str, value_split: str, trim: str, escape: str) -> None:
    try:
        parse = KeyValueParse(field_split=field_split, value_split=value_split, trim=trim, escape=escape)
    except ValidationError:
        return

    def outcome(pairs: Any) -> Any:
        try:
            return pairs(text)
        except DataError as error:
            return error.message

    exact = outcome(_QuotedPairs(parse).pairs)
    assert outcome(_quoted(parse)) == exact
    if '"' not in text:
        assert outcome(_plain(parse)) == exact


def test_declared_fields_are_not_known() -> None:
    assert columns(LOGFMT, message="string") is None
    assert columns({"key_value": {}}, message="string") is None


@pytest.mark.parametrize(
    "parse",
    [{"field_split": ""}, {"value_split": ""}, {"field_split": '"'}, {"value_split": "\\"}, {"field_split": "=", "value_split": "="},
     {"field_split": ",", "value_split": ",,"}, {"field_split": "==", "value_split": "="}, {"bare": "true"}, {"duplicates": "all"}],
)  # fmt: skip
def test_signs_that_mean_two_things_are_refused(parse: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        options({"key_value": parse})
