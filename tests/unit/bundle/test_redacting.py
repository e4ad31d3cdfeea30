"""What is left of a definition for the eyes of others, however it is written, and whether or not it can be parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.bundle.redacting import known_secrets, redacted

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "c4n4ry"
BROKEN = "\nsource: {type: [log_file"


@pytest.mark.parametrize("end", ["", BROKEN], ids=["sound", "broken"])
@pytest.mark.parametrize(
    "text",
    [
        f"name: app  # it was {CANARY}",
        f"# {CANARY}\nname: app",
        f"name: app\ntests:\n- name: one\n  input: {CANARY}\n- input: |\n    {CANARY}\n\n    {CANARY}",
        f"name: app\ntests:\n  - input: {CANARY}\n    expect:\n    - {CANARY}",
        f"name: app\ntests: [{{input: {CANARY}}}]",
        f'{{"name": "app", "tests": [{{"input": "{CANARY}"}}], "enabled": true}}',
        f'name: app\n"tests":\n- input: {CANARY}',
        f"kafka:\n  security:\n    password: {CANARY}",
        f"kafka: {{security: {{password: {CANARY}}}}}",
        f"kafka:\n  security:\n    key_pem: |\n      {CANARY}\n      {CANARY}",
    ],
)
def test_no_comment_no_sample_and_no_secret_is_shown(text: str, end: str) -> None:
    assert CANARY not in redacted(text + end)


def test_the_rest_stays_where_it_stood() -> None:
    head = "name: app\nsource:\n  type: log_file"
    tail = "record: {topic: '#t', key: a#b}\nkafka: {password: \"${cred:k}\"}"
    assert redacted(f"{head} # why\ntests:\n- input: one\n{tail}") == f"{head} # (left out)\ntests: null\n{tail}"
    assert redacted('{"tests": [\n{"input": "one"}\n], "name": "app"}') == '{tests: null, "name": "app"}'


@pytest.mark.parametrize("end", ["", BROKEN], ids=["sound", "broken"])
def test_secrets_of_every_origin_are_known(tmp_path: Path, end: str) -> None:
    (tmp_path / "pem").write_text('from-file-1\nfrom-file-"2"\n')
    (tmp_path / "k").write_text("from-cred")
    path = tmp_path / "a.yaml"
    path.write_text(
        f"a: '${{file:{tmp_path}/pem}}'\nb: ${{cred:k}}\nc: {{password: '${{env:SECRET}}', x: 1}}\npassword: literal-one # why\n"
        f"api_key: 'x${{env:PART}}y'\nauth: none\nd: ${{env:OPEN}}{end}"
    )
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "SECRET": "from-env", "PART": "part-of", "OPEN": "prod", "HOME": "/home"}
    said = 'from-file-1 from-file-"2" from-file-\\"2\\" from-cred from-env literal-one part-of prod none u:login@k1:9092'
    masked = known_secrets([path, tmp_path / "gone.yaml"], environ)(said)
    assert masked.split() == [*["********"] * 7, "prod", "none", "********@k1:9092"]
