"""What `mask` and `hash` share: values that nobody may read are replaced, and one that cannot be is hidden as a whole.

So no policy shows anything of it: `on_error: keep` neither.
"""

from __future__ import annotations

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.transforms.base import Step
from copycat_agent.transforms.paths import Change, changers

HIDDEN = "********"
"""What stands where a whole value is hidden."""
_FAILURES = (DataError, ValueError, TypeError, RecursionError)


def hiding(changes: dict[str, Change], done: str) -> Step:
    """The step that changes all values at these paths. A change may fail with one of `_FAILURES`; `done` is what then was not done."""
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
                except RecursionError:  # too deep to look for what is meant
                    fields[top] = HIDDEN
        if bad:
            msg = f"field {bad!r} cannot be {done}, so all of it is hidden"
            raise DataError(msg)
        return True

    return hide


def _or_hidden(how: Change) -> Change:
    def change(value: object) -> object:
        try:
            return how(value)
        except _FAILURES:
            return HIDDEN

    return change
