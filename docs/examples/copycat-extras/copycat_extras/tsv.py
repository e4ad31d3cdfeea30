r"""Converter `tsv`: chosen fields as one line, with tabs between them. `converters: {value: {type: tsv, fields: [time, user.id]}}`."""

from __future__ import annotations

from typing import Any, Literal

from copycat_agent.extending import (
    MISSING,
    Converter,
    ConverterKind,
    ConverterOptions,
    DataError,
    Field,
    FieldNames,
    Site,
    finder,
)

_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class TsvOptions(ConverterOptions):
    """One line of texts with tabs between them."""

    type: Literal["tsv"] = Field("tsv", description="Fields as one line, with tabs between them.")
    fields_: FieldNames = Field(alias="fields", min_length=1, description="The fields, in order. One that is missing or null is empty.")


def _build(options: TsvOptions, site: Site) -> Converter:
    del site  # where it works: key or value, and what is known of the fields
    finders = [finder(path) for path in options.fields_]

    def convert(value: bytes | str | dict[str, Any]) -> bytes:
        if not isinstance(value, dict):
            msg = "the tsv converter needs a record with fields"
            raise DataError(msg, "parse the line with a transform before")
        return "\t".join([_text(find(value)) for find in finders]).encode("utf-8", "replace")

    return convert


def _text(value: object) -> str:
    return "" if value is None or value is MISSING else str(value).translate(_ESCAPED)


TSV = ConverterKind(TsvOptions, _build)
