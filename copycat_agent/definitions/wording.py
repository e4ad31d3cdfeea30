"""From pydantic's errors to what an operator reads: a code, a sentence and a next step. Never the value itself."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.definitions.elsewhere import key_here
from copycat_agent.definitions.models import Loc, field_at, fields_by_key, markers, model_at
from copycat_agent.options import Definition, Options, format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from copycat_agent.options import FieldInfo


class Finding(NamedTuple):
    """One thing wrong at one place. `on_key` points to the key itself, not to what it holds."""

    loc: Loc
    code: str
    text: str
    hint: str = ""
    on_key: bool = False


_TYPES = {
    "string_type": ("needs text", "put it in quotes to make it text"),
    "int_type": ("needs a whole number", "write it without quotes and without a unit"),
    "float_type": ("needs a number", "write it without quotes"),
    "bool_type": ("needs true or false", "only true and false are booleans; yes, no, on and off are texts"),
    "tuple_type": ("needs a list", "write [one, two], or one item per line after a dash"),
    "list_type": ("needs a list", "write [one, two], or one item per line after a dash"),
    "dict_type": ("needs keys and values", "write {key: value}, or one key: value per line"),
    "model_type": ("needs keys and values", "write {key: value}, or one key: value per line"),
    "model_attributes_type": ("needs keys and values", "write {key: value}, or one key: value per line"),
}
_BOUNDS = {"greater_than": ("gt", "more than"), "greater_than_equal": ("ge", "at least"),
           "less_than": ("lt", "less than"), "less_than_equal": ("le", "at most")}  # fmt: skip


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?` for the nearest of the known words, or "" when none is near."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def missing(loc: Loc, field: FieldInfo | None) -> Finding:
    """A required key is absent from the map at `loc[:-1]`."""
    about = f": {field.description}" if field and field.description else ""
    return Finding(loc, "missing-key", f"{loc[-1]} is missing", f"add {loc[-1]}{about}")


def unknown_key(loc: Loc, model: type[Options] | None) -> Finding:
    """A key that the map it stands in does not know: what it was probably meant to be, or where it belongs."""
    key = str(loc[-1])
    known = list(fields_by_key(model)) if model else []
    hint = key_here(key, known) or nearest(key, known) or _belongs(key) or (f"known here: {', '.join(known)}" if known else "")
    return Finding(loc, "unknown-key", f"unknown key {key!r:.80}", hint, on_key=True)


def _belongs(key: str) -> str:
    """Where in a definition a key of exactly this name is known, as far as that is one place."""
    places = [f"{section}.{key}" for section, field in Definition.model_fields.items() if section != "source" and _knows(field, key)]
    return f"it belongs under {places[0].rpartition('.')[0]}" if len(places) == 1 else ""


def _knows(field: FieldInfo, key: str) -> bool:
    model = field.annotation
    return isinstance(model, type) and issubclass(model, Options) and key in fields_by_key(model)


def finding(error: Mapping[str, Any], loc: Loc, base: Loc, model: type[Options], written: str | None) -> Finding:
    """One pydantic error in words.

    `loc` is the place in the document; `loc[len(base):]` that in `model`. `written` is the scalar's text when it is a
    scalar that is not secret: it is used to find near words, and not repeated.
    """
    kind, inner = error["type"], loc[len(base) :]
    if kind == "missing":
        return missing(loc, field_at(model, inner))
    if kind == "extra_forbidden":
        return unknown_key(loc, model_at(model, inner[:-1]))
    field = field_at(model, inner)
    return Finding(loc, *_value(kind, error, field, written))


def _value(kind: str, error: Mapping[str, Any], field: FieldInfo | None, written: str | None) -> tuple[str, str, str]:
    context: Mapping[str, Any] = error.get("ctx", {})
    about = (field.description or "") if field else ""
    if kind in _TYPES:
        text, hint = _TYPES[kind]
        return "wrong-type", text, hint
    if kind == "literal_error":
        choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        words = f"needs one of {', '.join(choices)}" if len(choices) > 1 else f"needs to be {choices[0]}"
        return "bad-value", words, nearest(written or "", choices)
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return "bad-value", f"must be {words} {_quantity(field)(context[name])}", about
    if kind == "value_error":
        return "bad-value", str(context.get("error", error["msg"])), ""
    others = {"string_pattern_mismatch": f"does not match {context.get('pattern')}", "string_too_short": "must not be empty",
              "too_short": "must not be empty"}  # fmt: skip
    return "bad-value", others.get(kind, str(error["msg"])[:1].lower() + str(error["msg"])[1:]), about


def _quantity(field: FieldInfo | None) -> Callable[[Any], str]:
    """How a bound of this field is written."""
    functions = {getattr(marker, "func", None) for marker in markers(field)} if field else set()
    if format_duration in functions:
        return format_duration
    return format_size if format_size in functions else str


def combined(findings: list[Finding]) -> Finding:
    """One finding for one place where every branch of a choice has failed."""
    first = findings[0]
    texts = list(dict.fromkeys(found.text for found in findings))
    if all(text.startswith("needs ") for text in texts):
        text = "needs " + " or ".join(text.removeprefix("needs ") for text in texts)
    else:
        text = "; or ".join(texts)
    hints = dict.fromkeys(found.hint for found in findings if found.hint)
    return first._replace(text=text, hint=next(iter(hints), "") if len(texts) == 1 or len(hints) == 1 else "")


def no_value(loc: Loc) -> Finding:
    """A key without a value where one is needed."""
    return Finding(loc, "no-value", f"{loc[-1] if loc else 'the file'} has no value", "give it one, or delete the key")
