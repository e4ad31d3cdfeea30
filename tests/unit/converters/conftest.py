"""What all tests of converters need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent import oauth
from copycat_agent.converters import json_checking, registry_access, registry_session
from copycat_agent.oauth import token_requests

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _unhurried() -> Iterator[None]:
    """A registry, a token server and a check of a record may be slow on a busy machine. Tests of these limits set their own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (registry_session, registry_access, token_requests, oauth):
            patch.setattr(module, "ANSWER_SECONDS", 60.0)
        patch.setattr(registry_session, "STEP_SECONDS", 60.0)
        patch.setattr(json_checking, "SECONDS", 60.0)
        yield
