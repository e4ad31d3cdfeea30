"""Logins to Amazon MSK by AWS's own signer. That AWS takes the signature can only be seen at AWS."""

from __future__ import annotations

import base64
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from copycat_agent.errors import BlockedError
from copycat_agent.oauth import Tokens
from copycat_agent.options import OauthOptions
from tests.rig.object_store import CREDENTIALS

if TYPE_CHECKING:
    from pathlib import Path


def tokens() -> Tokens:
    return Tokens(OauthOptions(method="msk_iam", region="eu-west-1"), None, "kafka.security.oauth")


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host that AWS knows nothing of."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


def test_the_token_is_a_signed_address_of_the_region_for_a_quarter_of_an_hour(
    no_credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    asker = tokens()
    token = asker.token()
    address = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    said = {name: one for name, (one,) in parse_qs(address.query).items()}
    assert (address.scheme, address.netloc) == ("https", "kafka.eu-west-1.amazonaws.com")
    assert (said["Action"], said["X-Amz-Expires"]) == ("kafka-cluster:Connect", "900")
    assert said["X-Amz-Credential"].startswith("test/")
    assert len(said["X-Amz-Signature"]) == 64
    assert 880 < asker.give("")[1] - time.time() <= 900
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in address.geturl()


def test_missing_credentials_block_with_the_places_where_they_are_looked_for(no_credentials: None) -> None:
    with pytest.raises(BlockedError, match=r"no AWS credentials are found; .*instance role"):
        tokens().token()


def test_without_the_extra_the_reason_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` says so for the agent's own host; an executor of a cluster may lack it all the same."""
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(BlockedError, match=r"pip install 'copycat-agent\[msk-iam\]'"):
        tokens().token()
