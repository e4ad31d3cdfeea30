"""`mask` and `hash` replace secret values; a value that cannot be replaced is hidden as a whole."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.options import BeforeValidator, Field, Options, Regex, Secret
from copycat_agent.patterns import Match, compile_pattern
from copycat_agent.sql_types import element_of, struct_fields, struct_of
from copycat_agent.templates import MISSING, scalar_text
from copycat_agent.transforms.base import Columns, Steady, Step, StepOptions, Transform, TransformKind, in_short, known
from copycat_agent.transforms.paths import (
    Change,
    FieldName,
    FieldNames,
    apart,
    changers,
    clash,
    finder,
    putter,
    type_at,
    with_type,
)

HIDDEN = "********"
"""The text of a value that is hidden as a whole."""
_FAILURES = (DataError, ValueError, TypeError, RecursionError)
Digest = Callable[[bytes], str]
_Mask = Callable[[str], str]


def hiding(changes: dict[str, Change], done: str) -> Step:
    """Returns a step that changes all values at these paths. A change may raise `_FAILURES`; `done` names it in the error, as `hashed`."""
    rules = [(path, top, change, how) for path, how in changes.items() for top, change in changers(path)]

    def hide(draft: Draft) -> bool:
        fields, bad = draft.fields(), ""
        for path, top, change, how in rules:
            try:
                change(fields, how)
            except _FAILURES:
                bad = bad or path
                try:
                    change(fields, _or_hidden(how))
                except RecursionError:  # too deep to find the value
                    fields[top] = HIDDEN
        if bad:
            raise DataError(f"field {bad!r} cannot be {done}, so all of it is hidden")
        return True

    return hide


def _or_hidden(how: Change) -> Change:
    def change(value: object) -> object:
        try:
            return how(value)
        except _FAILURES:
            return HIDDEN

    return change


class HashSettings(Options):
    """Which fields, and how."""

    field: FieldNames = Field(min_length=1, description="The field, or a list of them. One that is missing or null stays so.")
    into: FieldName | None = Field(
        None,
        description="A field that gets one digest of all the fields, which stay. Absent: each becomes its digest.",
    )
    algorithm: Literal["sha256", "sha512", "sha1", "md5"] = Field("sha256", description="The hash function. The digest is written as hex.")
    secret: Secret | None = Field(
        None,
        description="Makes it an HMAC with this secret. Without one, whoever can guess a value (a name, a card) can check the guess.",
    )

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for fields that overlap, and for an empty secret."""
        if twice := clash(list(self.field)):
            raise ValueError(f"{twice!r} is named twice, or lies in another field that is named")
        if self.secret is not None and not self.secret.get_secret_value():
            raise ValueError("the secret is empty")


class HashOptions(StepOptions):
    """Values become digests."""

    hash: Annotated[HashSettings, in_short("field", str | tuple, str | list[str] | HashSettings)] = Field(
        description="`hash: email` replaces the field by its SHA-256. A text is hashed as UTF-8, a number as it is written, an object or a "
        "list as its JSON with sorted keys; a path leads into the objects of a list. What cannot be hashed is hidden."
    )


def _build_hash(options: HashOptions) -> Transform:
    settings = options.hash
    digest = _digest(settings)
    if settings.into is not None:
        put_digest, finders = putter(settings.into), [(path, finder(path)) for path in settings.field]

        def hash_together(draft: Draft) -> bool:
            fields = draft.fields()
            values = [None if (value := find(fields)) is MISSING else value for _, find in finders]
            if any(value is not None for value in values):
                parts = [None if value is None else _bytes(value, path) for value, (path, _) in zip(values, finders, strict=True)]
                put_digest(fields, digest(parts[0] if len(parts) == 1 and parts[0] is not None else _joined(parts)))
            return True

        return Steady(hash_together)

    return Steady(hiding({path: _hashing(digest, path) for path in settings.field}, "hashed"))


def _hashing(digest: Digest, path: str) -> Change:
    return lambda value: digest(_bytes(value, path))


def _digest(settings: HashSettings) -> Digest:
    name = settings.algorithm
    if settings.secret is not None:
        key = settings.secret.get_secret_value().encode()
        return lambda data: hmac.digest(key, data, name).hex()
    make = getattr(hashlib, name)
    return lambda data: make(data, usedforsecurity=False).hexdigest()


def _bytes(value: object, path: str) -> bytes:
    try:
        text = scalar_text(value)
        if text is None:
            text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_other)
    except (ValueError, TypeError, RecursionError):
        text = None
    if text is None:
        msg = f"field {path!r} cannot be written as text, so it cannot be hashed"
        raise DataError(msg)  # outside the except: the cause may quote the data
    return text.encode("utf-8", "backslashreplace")


def _other(value: object) -> str:
    text = scalar_text(value)
    if text is None:
        raise TypeError
    return text


def _joined(parts: list[bytes | None]) -> bytes:
    """Returns one value made of several, each with its length, so that `ab`, `c` and `a`, `bc` differ."""
    return b"".join(b"-," if part is None else b"%d:%s," % (len(part), part) for part in parts)


def _hash_columns(options: HashOptions, before: Columns) -> Columns:
    if options.hash.into is not None:
        return with_type(before, options.hash.into, "string")
    for path in options.hash.field:
        if type_at(before, path) is not None:
            before = with_type(before, path, "string")
    return before


HASH = TransformKind(HashOptions, _build_hash, known(_hash_columns))


class MaskRule(Options):
    """What is hidden, and by what."""

    pattern: Regex = Field(description="A regular expression. All that it matches is hidden, but for what its groups match.")
    with_: str | None = Field(
        None, alias="with", description="The text that stands for each stretch that is hidden. Absent: a * for each of its characters."
    )


_Rule = Annotated[MaskRule, in_short("pattern", str, str | MaskRule)]
_Rules = dict[FieldName, _Rule]


def _as_rules(value: object) -> object:
    """Raises ValueError for what looks like the mask of one field but would mask fields named `field` and `pattern`."""
    if isinstance(value, dict) and {"field", "pattern"} <= value.keys() and not any(isinstance(each, dict) for each in value.values()):
        raise ValueError("needs fields and their patterns, as in {card: RE}, or {card: {pattern: RE, with: TEXT}}")
    return value


class MaskOptions(StepOptions):
    """Parts of values are made unreadable."""

    mask: Annotated[_Rules, BeforeValidator(_as_rules, json_schema_input_type=_Rules), apart("masked")] = Field(
        min_length=1,
        description="Fields and what is hidden in them: a pattern, or {pattern, with}. {card: '\\b\\d{12}(\\d{4})\\b'} leaves the last "
        "four digits. Numbers become texts; every value in a list or an object is masked, and a path leads into the objects of a list. A "
        "field may be missing.",
    )


def _build_mask(options: MaskOptions) -> Transform:
    return Steady(hiding({path: _change(_masking(rule)) for path, rule in options.mask.items()}, "masked"))


def _change(masked: _Mask) -> Change:
    return lambda value: masked(value) if isinstance(value, str) else _inside(value, masked)


def _inside(value: Any, masked: _Mask) -> object:  # noqa: ANN401 - any value of a record
    """Returns a value other than a text with everything in it masked. Raises ValueError for an int with too many digits for Python."""
    if isinstance(value, dict):
        return {name: _inside(inner, masked) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_inside(inner, masked) for inner in value]
    if value is None:
        return None
    text = scalar_text(value)
    return masked(str(value) if text is None else text)


def _masking(rule: MaskRule) -> _Mask:
    pattern, instead = compile_pattern(rule.pattern), rule.with_

    def hidden(match: Match) -> str:
        text, first = match.group(), match.start()
        parts, begin = [], 0
        for start, end in _kept(match, pattern.groups):
            parts += [_veil(start - first - begin, instead), text[start - first : end - first]]
            begin = end - first
        return "".join([*parts, _veil(len(text) - begin, instead)])

    if not pattern.groups:
        return lambda text: pattern.sub(lambda match: _veil(match.end() - match.start(), instead), text)
    return lambda text: pattern.sub(hidden, text)


def _kept(match: Match, groups: int) -> list[tuple[int, int]]:
    """Returns what the groups matched, in order, as ranges that do not overlap."""
    kept: list[tuple[int, int]] = []
    for start, end in sorted((match.start(number), match.end(number)) for number in range(1, groups + 1)):
        if start < match.start() or end > match.end():
            continue  # -1 for a group that did not match; a group in a look-around is outside the match
        if kept and start <= kept[-1][1]:
            kept[-1] = (kept[-1][0], max(end, kept[-1][1]))
        elif end > start:
            kept.append((start, end))
    return kept


def _veil(length: int, instead: str | None) -> str:
    if instead is None:
        return "*" * length
    return instead if length else ""


def _mask_columns(options: MaskOptions, before: Columns) -> Columns:
    for path in options.mask:
        if (type_ := type_at(before, path)) is not None:
            before = with_type(before, path, _texts(type_))
    return before


def _texts(type_: str) -> str:
    """Returns the same type with a string for every value."""
    inner, element = struct_fields(type_), element_of(type_)
    if inner is not None:
        return struct_of([(name, _texts(one)) for name, one in inner])
    return "string" if element is None else f"array<{_texts(element)}>"


MASK = TransformKind(MaskOptions, _build_mask, known(_mask_columns))
