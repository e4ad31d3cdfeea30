"""What a value is that a schema does not take."""

from __future__ import annotations

from copycat_agent.errors import DataError

_NAME_CHARACTERS = 100


class Unfit(ValueError):  # noqa: N818 - an outcome, which becomes a DataError with its place
    """A value does not fit. `reason` never holds it; `path` is where it lies, outermost name first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def within(self, name: str) -> Unfit:
        """The same, seen from outside of the field `name`."""
        self.path.insert(0, name[:_NAME_CHARACTERS])
        return self

    def as_data_error(self, hint: str) -> DataError:
        """In words, for a dead letter or a person."""
        path = ".".join(self.path[:20]).replace(".[", "[")
        return DataError(f"field {path!r}: {self.reason}" if path else self.reason, hint)


def kind(value: object) -> str:  # noqa: PLR0911 - a table of kinds
    """What a value is, in words for people, without it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number with a point"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def wanted(what: str, value: object) -> Unfit:
    """`what` is needed, and `value` is something else."""
    return Unfit(f"{what} is needed, not {kind(value)}")
