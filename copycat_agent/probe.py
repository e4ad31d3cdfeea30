"""`copycat health` for frequent probes: it imports next to nothing, 20 ms of CPU where other commands take 700.

The answer is that of `/livez` and `/readyz` on the agent's own socket, so no port needs to be open for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Sequence

SOCKET_NAME = "agent.sock"
SERVICE_SOCKET = f"/run/copycat/{SOCKET_NAME}"
"""The socket of the packaged service."""
ANSWER_SECONDS = 5.0
_ANSWER_BYTES_MAX = 2**20


def quick(arguments: Sequence[str]) -> int | None:
    """Runs `copycat health` with these arguments and returns its exit code; None if they need the whole command line."""
    live, places = False, default_places()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--socket" and rest:
            places = [os.path.abspath(rest.pop(0))]  # noqa: PTH100 - pathlib takes longer to import than all else here
        elif word == "--live" and "--ready" not in arguments:
            live = True
        elif word != "--ready" or "--live" in arguments:
            return None
    return report(places, live=live)


def default_places() -> list[str]:
    """Returns the default sockets of agents: of a service, of this user, of the packaged service."""
    runtime = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    state = os.environ.get("STATE_DIRECTORY") or os.path.expanduser("~/.local/state/copycat")  # noqa: PTH111 - see above
    return [*(os.path.join(one, SOCKET_NAME) for one in (runtime, os.path.abspath(state)) if one), SERVICE_SOCKET]  # noqa: PTH100, PTH118


def report(places: Sequence[str], *, live: bool) -> int:
    """Queries the first agent that listens at one of these, and prints the answer. Returns 0 if it is alive (or ready), else 1."""
    good, words = _ask(places, "/livez" if live else "/readyz")
    state = "alive" if live else "ready"
    line = f"{state if good else f'not {state}'}{': ' if words else ''}{words}"
    line = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)  # no control characters reach the terminal
    with contextlib.suppress(OSError):  # nobody reads it: the exit code is the answer
        os.write(1, f"{line}\n".encode("ascii", "backslashreplace"))
    return 0 if good else 1


def _ask(places: Sequence[str], path: str) -> tuple[bool, str]:
    """Returns whether the answer was good, and why not."""
    end = time.monotonic() + ANSWER_SECONDS
    failure: OSError | None = None
    for place in places:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(ANSWER_SECONDS)
            try:
                asking.connect(place)
            except OSError as error:
                failure = failure if failure and isinstance(error, FileNotFoundError) else OSError(error.errno, error.strerror, place)
                continue
            try:
                asking.sendall(b"GET %b HTTP/1.0\r\nHost: localhost\r\n\r\n" % path.encode())
                return _verdict(_everything(asking, end))
            except TimeoutError:
                return False, f"the agent did not answer within {ANSWER_SECONDS:.0f} s at {place}"
            except OSError as error:
                return False, f"the agent went away before it answered at {place}: {error.strerror}"
    return False, f"no agent answers at {failure.filename}: {failure.strerror}" if failure else "no agent answers"


def _everything(asking: socket.socket, end: float) -> bytes:
    found = b""
    while len(found) < _ANSWER_BYTES_MAX:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        asking.settimeout(left)
        block = asking.recv(65536)
        if not block:
            break
        found += block
    return found


def _verdict(answer: bytes) -> tuple[bool, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")[2]
    if status.startswith("200 "):
        return True, ""
    try:
        said = json.loads(body)
        troubles = [f"{one['connector']}{': ' if one['connector'] else ''}{one['reason']}" for one in said.get("troubles", ())]
        return False, "; ".join(troubles) or str(said["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return False, f"the answer was {status or 'none'}: is it a copycat agent that listens there?"
