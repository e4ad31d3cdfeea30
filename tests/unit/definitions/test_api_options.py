"""`api` of agent.yaml: where the agent answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from copycat_agent.definitions import load_agent
from copycat_agent.errors import DefinitionError


def load(tmp_path: Path, api: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(f"api: {api}\n")
    load_agent(path)


@pytest.mark.parametrize(
    "listen",
    ["127.0.0.1:9464", '"[::1]:65535"', "localhost:9464", "0.0.0.0:9464", '"[::]:9464"', "10.0.0.1:9464", "no-such-host.invalid:80"],
)
def test_any_address_is_good(tmp_path: Path, listen: str) -> None:
    """Whether it is this host's shows when the agent starts; nothing is looked up here."""
    load(tmp_path, f"{{listen: {listen}}}")


@pytest.mark.parametrize("listen", ["9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", ":9464", "http://127.0.0.1:80"])
def test_what_is_no_address_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(DefinitionError, match="needs HOST:PORT"):
        load(tmp_path, f"{{listen: '{listen}'}}")


@pytest.mark.parametrize(
    "option", ["socket: {}", "users: {}", "tls: {{cert_file: {}, key_file: /k}}", "tls: {{cert_file: /c, key_file: {}}}"]
)
def test_a_file_needs_an_absolute_path(tmp_path: Path, option: str) -> None:
    load(tmp_path, f"{{{option.format('/etc/copycat/file')}}}")
    with pytest.raises(DefinitionError, match="needs an absolute path"):
        load(tmp_path, f"{{{option.format('file')}}}")


@pytest.mark.parametrize("section", ["connect", "page"])
@pytest.mark.parametrize("listen", ["127.0.0.1:8083", "localhost:8083", "[::1]:8083", "logs-7.example.test:8083"])
def test_connects_api_and_the_page_need_no_login_on_loopback(tmp_path: Path, section: str, listen: str) -> None:
    """What a name stands for shows when the agent starts."""
    load(tmp_path, f"{{{section}: {{listen: '{listen}'}}}}")


@pytest.mark.parametrize("section", ["connect", "page"])
@pytest.mark.parametrize("listen", ["0.0.0.0:8083", "[::]:8083", "10.0.0.1:8083"])
def test_connects_api_and_the_page_need_tls_and_users_for_other_hosts(tmp_path: Path, section: str, listen: str) -> None:
    wanted, tls, users = f"{section}: {{listen: '{listen}'}}", "tls: {cert_file: /c, key_file: /k}", "users: /u"
    for some in ([], [tls], [users]):
        with pytest.raises(DefinitionError, match=r"so it needs api\.tls and api\.users"):
            load(tmp_path, f"{{{', '.join([wanted, *some])}}}")
    load(tmp_path, f"{{{wanted}, {tls}, {users}}}")


@pytest.mark.parametrize(
    ("api", "words"),
    [
        ("{connect: {}}", "listen is missing"),
        ("{connect: {listen: 8083}}", "needs a text|text"),
        ("{connect: {listen: '8083'}}", "needs HOST:PORT"),
        ("{listen: '127.0.0.1:8083', connect: {listen: '127.0.0.1:8083'}}", "api.listen has this address already"),
        ("{connect: {listen: '127.0.0.1:8083', port: 1}}", "unknown key 'port'"),
    ],
)
def test_an_address_of_connects_api_that_will_not_do_is_told(tmp_path: Path, api: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        load(tmp_path, api)


@pytest.mark.parametrize(
    ("api", "words"),
    [
        ("{page: {}}", "listen is missing"),
        ("{page: {listen: '8090'}}", r"needs HOST:PORT[\s\S]*127\.0\.0\.1:8090"),
        ("{listen: '127.0.0.1:8090', page: {listen: '127.0.0.1:8090'}}", r"api\.listen has this address already"),
        ("{connect: {listen: '127.0.0.1:1'}, page: {listen: '127.0.0.1:1'}}", r"api\.connect\.listen has this address already"),
        ("{page: {listen: '127.0.0.1:8090', port: 1}}", "unknown key 'port'"),
    ],
)
def test_an_address_of_the_page_that_will_not_do_is_told(tmp_path: Path, api: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        load(tmp_path, api)
