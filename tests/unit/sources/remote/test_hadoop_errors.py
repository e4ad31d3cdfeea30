"""Errors of hdfs-native as the agent tells them."""

from __future__ import annotations

import errno

import pytest

from copycat_agent.sources.files.reading.hadoop import plain_errors


def rpc(name: str) -> RuntimeError:
    """What hdfs-native raises for an exception of the NameNode."""
    return RuntimeError(f'RPCError("org.apache.hadoop.{name}", "no\\n\\tat org.apache.hadoop.ipc.Server.call(Server.java:1404)"')


class PanicException(BaseException):
    """As pyo3 names it."""


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (FileNotFoundError("/a/b\n\tat x"), errno.ENOENT, "there is no such file or directory"),
        (FileExistsError("/a/b\n\tat x"), errno.EEXIST, "it exists already"),
        (rpc("security.AccessControlException"), errno.EACCES, "it is not allowed (AccessControlException)"),
        (rpc("hdfs.server.namenode.SafeModeException"), errno.EIO, "SafeModeException"),
        (rpc("hdfs.protocol.FSLimitException$PathComponentTooLongException"), errno.EIO, "PathComponentTooLongException"),
        (RuntimeError('InvalidArgument("No NameNode hosts found")'), errno.EINVAL, "InvalidArgument: No NameNode hosts found"),
        (RuntimeError("NoSASLMechanism"), errno.EIO, "NoSASLMechanism"),
        (NotImplementedError("File encryption"), errno.EOPNOTSUPP, "hdfs-native cannot do it (File encryption)"),
        (OSError("Connection refused (os error 111)"), errno.EIO, "Connection refused (os error 111)"),
        (ValueError("bad\nline"), errno.EINVAL, "bad"),
        (PanicException("Cannot seek beyond the end"), errno.EIO, "hdfs-native failed (Cannot seek beyond the end)"),
    ],
)  # fmt: skip
def test_an_error_names_what_went_wrong_without_a_stack(raised: BaseException, code: int, words: str) -> None:
    with pytest.raises(OSError, match=r".") as told, plain_errors():
        raise raised
    assert (told.value.errno, told.value.strerror) == (code, words)


def test_other_exceptions_pass() -> None:
    with pytest.raises(KeyboardInterrupt), plain_errors():
        raise KeyboardInterrupt
