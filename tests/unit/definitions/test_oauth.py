"""What a login with a token needs is told by `check`, with place and next step."""

from __future__ import annotations

import sys

import pytest

from tests.unit.definitions.conftest import GOOD, Load

OIDC = "token_url: 'https://login.example.test/t', client_id: a, client_secret: b"


def oauth(text: str) -> str:
    return GOOD + f"kafka: {{security: {{protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: {{{text}}}}}}}\n"


@pytest.mark.parametrize(
    "text",
    [
        OIDC,
        OIDC + ", scope: kafka, extensions: {logicalCluster: lkc-1, identityPoolId: pool-7}",
        "method: jwt_bearer, token_url: 'https://login.example.test/t', assertion: {file: /var/run/token}",
        "method: jwt_bearer, token_url: 'https://login.example.test/t', assertion: {key_file: /k.pem, issuer: a, lifetime: 2m}",
        "method: azure_imds, resource: 'api://kafka'",
        "method: msk_iam, region: eu-west-1, role_arn: 'arn:aws:iam::1:role/r'",
    ],
)
def test_each_way_to_a_token_is_good_with_what_it_needs(load: Load, text: str) -> None:
    assert load(oauth(text)).problems == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client_id: a, client_secret: b", "oidc needs token_url"),
        ("token_url: 'https://t', client_id: a", "oidc needs client_secret"),
        ("method: jwt_bearer, token_url: 'https://t'", "jwt_bearer needs assertion"),
        ("method: jwt_bearer, token_url: 'https://t', assertion: {}", "needs either file or key_file"),
        ("method: jwt_bearer, token_url: 'https://t', assertion: {file: /a, key_file: /b}", "needs either file or key_file"),
        ("method: jwt_bearer, token_url: 'https://t', assertion: {file: /a, issuer: b}", "issuer would have no effect"),
        ("method: azure_imds", "azure_imds needs resource"),
        ("method: msk_iam", "msk_iam needs region"),
        (OIDC + ", region: eu-west-1", "is not used with method oidc"),
        ("method: msk_iam, region: a, client_secret: b", "is not used with method msk_iam"),
        (OIDC + ", extensions: {a_b: c}", "'a_b' is no SASL extension"),
        (OIDC + ", extensions: {auth: c}", "'auth' is no SASL extension"),
        (OIDC + ", ca_file: /nope.pem", "No such file"),
        ("token_url: 'ldap://t', client_id: a, client_secret: b", "needs a URL"),
        ("token_url: 'https://', client_id: a, client_secret: b", "needs a URL"),
        ("method: kerberos", "needs one of oidc, jwt_bearer, azure_imds, msk_iam"),
    ],
)
def test_what_cannot_work_is_told_before_anything_runs(load: Load, text: str, said: str) -> None:
    (problem,) = load(oauth(text)).problems
    assert said in f"{problem.text} {problem.hint}"
    assert problem.line == 4


def test_amazon_msk_without_its_extra_names_the_command(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    (problem,) = load(oauth("method: msk_iam, region: eu-west-1")).problems
    assert (problem.code, problem.hint) == ("not-installed", "pip install 'copycat-agent[msk-iam]'")


@pytest.mark.parametrize(
    ("registry", "said"),
    [
        (f"url: 'https://r', oauth: {{{OIDC}}}, basic_auth: {{username: a, password: b}}", "has no effect beside basic_auth"),
        ("url: 'https://r', oauth: {client_id: a, client_secret: b}", "oidc needs token_url"),
        ("url: 'https://r', oauth: {method: msk_iam}", "needs one of oidc, jwt_bearer, azure_imds"),
        ("url: 'https://r', cert_file: /c.pem", "go together"),
        ("url: 'https://r', key_file: /c.pem", "go together"),
        ("url: 'https://r', key_password: a", "go together"),
        ("url: 'http://r', cert_file: /c.pem", "needs an https:// address"),
    ],
)
def test_a_registrys_login_is_looked_at_as_well(load: Load, registry: str, said: str) -> None:
    problems = load(GOOD + f"converters: {{schema_registry: {{{registry}}}}}\n").problems
    assert said in f"{problems[0].text} {problems[0].hint}"
    assert "Traceback" not in str(problems)
