"""`api` of agent.yaml: the agent answers to this host only, and says so to whoever writes something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from copycat_agent.definitions import load_agent
from copycat_agent.errors import DefinitionError


def load(tmp_path: Path, api: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(f"api: {api}\n")
    load_agent(path)


@pytest.mark.parametrize("listen", ["127.0.0.1:9464", "127.1.2.3:1", '"[::1]:65535"', "localhost:9464"])
def test_loopback_is_good(tmp_path: Path, listen: str) -> None:
    load(tmp_path, f"{{listen: {listen}}}")


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:9464", '"[::]:9464"', "10.0.0.1:9464", "192.0.2.7:80", '"[2001:db8::1]:80"', "no-such-host.invalid:80"]
)
def test_everything_else_is_refused_with_what_to_write(tmp_path: Path, listen: str) -> None:
    with pytest.raises(DefinitionError, match=r"agent.yaml:1:\d+: .* is not this host's loopback.*write 127.0.0.1:PORT"):
        load(tmp_path, f"{{listen: {listen}}}")


@pytest.mark.parametrize("listen", ["9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", ":9464", "http://127.0.0.1:80"])
def test_what_is_no_address_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(DefinitionError, match="needs HOST:PORT"):
        load(tmp_path, f"{{listen: '{listen}'}}")


def test_a_socket_needs_an_absolute_path(tmp_path: Path) -> None:
    load(tmp_path, "{socket: /run/copycat/agent.sock}")
    with pytest.raises(DefinitionError, match="needs an absolute path"):
        load(tmp_path, "{socket: agent.sock}")
