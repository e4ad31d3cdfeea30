"""Hiding known secrets in what a person is shown: by their text, wherever it came to stand. What is sent to Kafka is never masked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "********"
"""Shown in place of a secret."""
SHORTEST = 4
"""A secret of fewer characters is hidden only where it stands alone: replacing every "a" would hide everything."""


class Mask:
    """Replaces secrets, and each of their lines: as they are, and as a template, JSON or a repr writes them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {part for secret in secrets for part in (secret, *secret.splitlines()) if part.strip()}
        self._alone = frozenset(one for one in known if len(one.strip()) < SHORTEST)
        forms = {form: HIDDEN for one in known - self._alone for form in _forms(one)}
        forms |= {json.dumps(one): json.dumps(HIDDEN) for one in self._alone}
        self._forms = sorted(forms.items(), key=lambda item: len(item[0]), reverse=True)

    def text(self, shown: str) -> str:
        """The text with every secret hidden, the longest first."""
        if shown in self._alone:
            return HIDDEN
        for form, instead in self._forms:
            shown = shown.replace(form, instead)
        return shown

    def content(self, content: bytes) -> bytes:
        """Hides secrets in the bytes of a record; call it before the bytes are cut."""
        if not (self._forms or self._alone):
            return content
        return self.text(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:  # noqa: ANN401 - whatever is shown
        """Hides secrets in texts and bytes within dicts, lists and tuples; everything else stays as it is."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.content(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            items = [self.value(one) for one in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value


NOTHING_SECRET = Mask(())


def _forms(secret: str) -> Iterator[str]:
    for text in (secret, secret.replace("{{", "{").replace("}}", "}")):  # the latter: what a template makes of it
        yield from (text, repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
