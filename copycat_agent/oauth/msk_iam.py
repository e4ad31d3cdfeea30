"""Logins to Amazon MSK: AWS's own signer makes the token on this host, with credentials from where AWS's libraries look for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from copycat_agent.errors import BlockedError, RetriableError

if TYPE_CHECKING:
    from copycat_agent.options import OauthOptions

_WHERE = "give the agent's process credentials as AWS's libraries find them: an instance role, a profile, AWS_ACCESS_KEY_ID"


def signed(options: OauthOptions) -> tuple[str, float]:
    """A token, and for how many seconds it is good. Raises BlockedError, or RetriableError when AWS does not answer."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer  # noqa: PLC0415 - an extra, and slow to import
        from botocore.exceptions import ClientError, HTTPClientError  # noqa: PLC0415 - comes with it
    except ImportError:
        words = "a login to Amazon MSK needs a Python package that is not installed"
        raise BlockedError(words, "pip install 'copycat-agent[msk-iam]'") from None
    try:
        if options.role_arn is not None:
            token, until_ms = Signer.generate_auth_token_from_role_arn(options.region, options.role_arn)
        else:
            token, until_ms = Signer.generate_auth_token(options.region)
    except HTTPClientError as error:
        raise RetriableError(f"AWS does not answer: {type(error).__name__}", "the agent asks again by itself") from None
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "no reason given")
        raise BlockedError(f"AWS refuses to lend role_arn: {code}", "grant sts:AssumeRole on it to the agent's credentials") from None
    except AttributeError:  # the signer's way to say that there are none
        raise BlockedError("no AWS credentials are found", _WHERE) from None
    except Exception as error:  # noqa: BLE001 - its words may show what was sent
        raise BlockedError(f"the AWS credentials cannot be used: {type(error).__name__}", _WHERE) from None
    return token, until_ms / 1000 - time.time()
