"""Transform `shorten`: long texts are cut. `- shorten: {message: 1000, user.agent: 80}`."""

from __future__ import annotations

from copycat_agent.extending import (
    MISSING,
    Columns,
    DataError,
    Draft,
    Field,
    FieldName,
    Steady,
    StepOptions,
    Transform,
    TransformKind,
    finder,
    putter,
)


class ShortenOptions(StepOptions):
    """Texts are cut to a length."""

    # named like the action; `if` and `on_error` come from StepOptions
    shorten: dict[FieldName, int] = Field(min_length=1, description="Fields and how many characters are left of their texts.")

    def model_post_init(self, context: object) -> None:
        """Refuse what cannot work; the ValueError is shown with its place in the definition."""
        super().model_post_init(context)
        if any(length < 1 for length in self.shorten.values()):
            msg = "a length is at least 1"
            raise ValueError(msg)


def _build(options: ShortenOptions) -> Transform:
    # once per definition and process: everything that can be prepared is prepared here
    rules = [(path, finder(path), putter(path), length) for path, length in options.shorten.items()]

    def shorten(draft: Draft) -> bool:
        fields = draft.fields()
        for path, find, put, length in rules:
            value = find(fields)
            if isinstance(value, str):
                if len(value) > length:
                    put(fields, value[:length])
            elif value is not None and value is not MISSING:
                msg = f"field {path!r} is not a text"
                raise DataError(msg)  # a bad record; never put its data into the words
        return True  # False drops the record

    return Steady(shorten)


def _columns(options: ShortenOptions, before: Columns | None) -> Columns | None:
    del options
    return before  # a text stays a text


SHORTEN = TransformKind(ShortenOptions, _build, _columns)
