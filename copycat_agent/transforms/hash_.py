"""`hash`: values become digests, so that they can be told apart and joined, and not be read."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Annotated, Literal

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.options import BeforeValidator, Field, Options, Secret
from copycat_agent.templates import MISSING, scalar_text
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.columns import type_at, with_type
from copycat_agent.transforms.hiding import hiding
from copycat_agent.transforms.paths import Change, FieldName, FieldNames, clash, finder, putter

Digest = Callable[[bytes], str]


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
        """Refuse what has no one meaning."""
        if twice := clash(list(self.field)):
            msg = f"{twice!r} is named twice, or lies in another field that is named"
            raise ValueError(msg)
        if self.secret is not None and not self.secret.get_secret_value():
            msg = "the secret is empty"
            raise ValueError(msg)


def _as_settings(value: object) -> object:
    return {"field": value} if isinstance(value, str | tuple) else value


class HashOptions(StepOptions):
    """Values become digests."""

    hash: Annotated[HashSettings, BeforeValidator(_as_settings, json_schema_input_type=str | list[str] | HashSettings)] = Field(
        description="`hash: email` replaces the field by its SHA-256. A text is hashed as UTF-8, a number as it is written, an object or a "
        "list as its JSON with sorted keys; a path leads into the objects of a list. What cannot be hashed is hidden."
    )


def _build(options: HashOptions) -> Transform:
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
    """One value of several, each with its length, so that `ab`, `c` and `a`, `bc` differ."""
    return b"".join(b"-," if part is None else b"%d:%s," % (len(part), part) for part in parts)


def _columns(options: HashOptions, before: Columns | None) -> Columns | None:
    if before is None:
        return None
    if options.hash.into is not None:
        return with_type(before, options.hash.into, "string")
    for path in options.hash.field:
        if type_at(before, path) is not None:
            before = with_type(before, path, "string")
    return before


HASH = TransformKind(HashOptions, _build, _columns)
