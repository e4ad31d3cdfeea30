"""The process in which a reader plans: `python -m copycat_agent.sources.datasource.process FD`. It can be killed at any time.

It answers requests over the socket FD in order, in JSON; an answer with `work` is followed by those bytes. What the reader prints is
discarded: it may contain data.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.registry import described
from copycat_agent.sources.contract import same_position
from copycat_agent.sources.datasource.reader import StreamReader, UnusableSourceError, fault

_PR_SET_PDEATHSIG = 1
_TEXT_MOST = 2**16
"""Most characters of an exception's text. Far more than is shown: a secret must be complete to be hidden."""

Reply = tuple[dict[str, Any], bytes]


class ReaderSession:
    """Answers requests to one reader."""

    def __init__(self) -> None:
        self._reader: StreamReader | None = None
        self.name = ""

    def answer(self, question: dict[str, Any]) -> Reply:
        """Answers one request. Raises whatever the reader raises."""
        if question["ask"] == "open":
            return self._open(question)
        assert self._reader is not None, "it is opened first"
        answer: Reply = getattr(self, f"_{question['ask']}")(self._reader, question)
        return answer

    def _open(self, question: dict[str, Any]) -> Reply:
        self.name = question["class"]
        sys.path.extend(one for one in question["path"] if one not in sys.path)
        try:
            self._reader = StreamReader(question["class"], question["options"])
        except (ImportError, SyntaxError) as error:
            raise UnusableSourceError(
                f"{question['class']}: {described(error)}", "install what it needs for the Python that runs the agent"
            ) from None
        reader = self._reader
        columns = [[column.name, column.type] for column in reader.schema.columns]
        return {"simple": reader.is_simple, "limit": reader.has_limit, "knows_end": reader.knows_its_end, "columns": columns}, b""

    def _initial(self, reader: StreamReader, question: dict[str, Any]) -> Reply:
        del question
        return {"offset": reader.initial()}, b""

    def _prepare(self, reader: StreamReader, question: dict[str, Any]) -> Reply:
        del question
        reader.prepare_end()
        return {}, b""

    def _latest(self, reader: StreamReader, question: dict[str, Any]) -> Reply:
        return {"offset": reader.latest(question["start"], everything=question.get("everything", True))}, b""

    def _next(self, reader: StreamReader, question: dict[str, Any]) -> Reply:
        """Plans the range from `start` on. Returns its end, and the records of a simple reader or the partitions of any other."""
        start = question["start"]
        if reader.is_simple:
            end, rows = reader.read_on(start, question["most_bytes"])
            if rows is None:
                return {"offset": end, "too_large": True}, b""
            return {"offset": end, "rows": True, "records": len(rows)}, pickle.dumps(rows)
        end = reader.latest(start, everything=False)
        return {"offset": end}, b"" if same_position(start, end) else reader.plan(start, end)

    def _plan(self, reader: StreamReader, question: dict[str, Any]) -> Reply:
        return {}, reader.plan(question["start"], question["end"])

    def _commit(self, reader: StreamReader, question: dict[str, Any]) -> Reply:
        reader.commit(question["end"])
        return {}, b""

    def close(self) -> None:
        """Stops the reader, if there is one."""
        if self._reader is not None:
            self._reader.stop()


def serve(connection: Connection) -> None:
    """Answers requests until the other end is closed."""
    session = ReaderSession()
    while True:
        try:
            question = json.loads(connection.recv_bytes())
        except EOFError:
            return session.close()
        try:
            answer, work = session.answer(question)
        except Exception as error:  # noqa: BLE001 - third-party code may raise anything
            answer, work = _failure(error, session.name), b""
        connection.send_bytes(json.dumps(answer | {"work": bool(work)}).encode())
        if work:
            connection.send_bytes(work)


def _failure(error: Exception, name: str) -> dict[str, Any]:
    """Returns the reply for an error. A foreign exception is given by type and place; only commands that people run show its text."""
    if isinstance(error, CopycatError):
        option = "class" if isinstance(error, UnusableSourceError) else ""
        return {"error": error.message, "hint": error.hint, "is_fatal": isinstance(error, FatalError), "option": option}
    return {"error": fault(error, name), "hint": "", "is_fatal": False, "option": "", "text": _text(error)}


def _text(error: Exception) -> str:
    try:
        return str(error)[:_TEXT_MOST]
    except Exception:  # noqa: BLE001 - third-party code may raise anything
        return ""


def main() -> None:
    """Serves the socket of the command line, which is the only file shared with the agent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which closes the socket
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    with Connection(int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
