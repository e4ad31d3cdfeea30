"""`rename`: fields get other names, or other places."""

from __future__ import annotations

from copycat_agent.formats.draft import Draft
from copycat_agent.options import Field
from copycat_agent.templates import MISSING
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.columns import type_at, with_type, without_field
from copycat_agent.transforms.paths import FieldName, clash, putter, taker


class RenameOptions(StepOptions):
    """Fields get other names."""

    rename: dict[FieldName, FieldName] = Field(
        min_length=1,
        description="Old names and new ones, as in {msg: message, user: labels.user}. All at once, so two fields can change places. A "
        "field that is missing is left out; what has the new name already is replaced.",
    )

    def model_post_init(self, context: object) -> None:
        """Refuse what has no one meaning."""
        super().model_post_init(context)
        for names in (list(self.rename), list(self.rename.values())):
            if twice := clash(names):
                msg = f"{twice!r} is named twice, or lies in another field that is named"
                raise ValueError(msg)


def _build(options: RenameOptions) -> Transform:
    pairs = [(taker(old), putter(new)) for old, new in options.rename.items()]

    def rename(draft: Draft) -> bool:
        fields = draft.fields()
        moved = [(put, value) for take, put in pairs if (value := take(fields)) is not MISSING]
        for put, value in moved:
            put(fields, value)
        return True

    return Steady(rename)


def _columns(options: RenameOptions, before: Columns | None) -> Columns | None:
    if before is None:
        return None
    types = {new: type_ for old, new in options.rename.items() if (type_ := type_at(before, old)) is not None}
    for old in options.rename:
        before = without_field(before, old)
    for new, type_ in types.items():
        before = with_type(before, new, type_)
    return before


RENAME = TransformKind(RenameOptions, _build, _columns)
