"""What filelog receivers of the OpenTelemetry Collector keep in file_storage: a bbolt file with first bytes and offsets."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.errors import CopycatError
from copycat_agent.workbench.takeover import otel_storage
from copycat_agent.workbench.takeover.peer_state import PeerState
from tests.unit.workbench.takeover.bolts import SIZE, branched, inline, meta
from tests.unit.workbench.takeover.peers import LINES, assert_never_crashes, judged, offsets, read_on, refused, successor, taken_over

BY_BBOLT = (
    "eNrt2D1Lw0AYwPG2voE4dPELnJu05dqqQ8DBF8ShKGinLnKaSxtM05pcEC0O+iX8Hi7ufgsFP4LgLqIXGwsO4uDgC/8fHHfPkee5I2R5kssNjWfzw93MQyFd"
    "FIdxIffRS2Yiiyez+ebydl7eu+c5AAAAAADw6+S/6P/Hvuj/p7L5Yu7x6frqaMAbBQAAAADg9ymM5vzof0Ax6+tXbeBqTyWB+Tw9P1qnabN2PNvh+YHe88N+"
    "YiqHYe843LBxXJ0eiA0/bOuoH/mhEc5AeH4Um739E6Nj4YhWN4hbuyvHa+3lZXFWEtueF2v7XF2WxI4+6EXuVtIVTrUk0norxkT+fvKWOhBBr11JT62Eqqtt"
    "LVWxO2mRTa1cHdlzVeCfalc4ngpibUsESdzZNcroNL2hYrOujFrrKHtBm1+TtaWyrJZlrSnrjlxw5GJLlEbPNXTYNh3hSHtCs3eoQ7vxXuxseL/mST8tNLzH"
    "NJ8aAAAAAOAHjf2F/n+B/h8AAAAAgO8Y/wv9f43+HwAAAAAAAAAAAAAAAAAAAAAAAAAAAADwv70CJ709QA=="
)
"""A file that bbolt 1.4.0 has written with the options of file_storage, over five transactions: packed by zlib, in base64."""


BY_RECEIVER = (
    "eNrt2DFKA0EUBuBkjRhWi6CIERtZ+0UsI7ZeQyJuJBh3AyYEFBtrBU9hZWXvRbxDtFO00Q2uAQsJ2Bjk++DxZoaZZqb6p1T6VCn68GFhGIwGte/rX94Ls8V8"
    "sejXKzfr++HGagkAAACYOuUJ+T+YkP+Xij64Pa09br7Mu1EAAACYPsG4l8f/AaPoP5fXRV4HSavZ7/R+Pl4ej0fHlvPayavV7iR77bTb78VHaTZId/P5Sbgd"
    "hmE1S5OwN8jCWrUeRGtnUSc7jEfb47R5nESNqNntxvladL4VVu/u316fLq+e6w0vBQAAAL83I/8DAADAv1eR/wEAAAAAAAAAAAAAAAAAAODPfQBRj3xI"
)
"""What a real filelog receiver 0.165.1 has written of a file with the lines `one` and `two`: packed by zlib, in base64."""


def known(first: bytes, offset: object, path: str = "") -> dict[str, Any]:
    """A file as reader.Metadata is serialized."""
    attributes = {"log.file.name": "app.log"} | ({"log.file.path": path} if path else {})
    return {
        "Fingerprint": {"first_bytes": base64.b64encode(first).decode()}, "Offset": offset, "RecordNum": 1, "FileAttributes": attributes,
        "HeaderFinalized": False, "FlushState": {"LastDataChange": "2026-01-02T03:04:05Z", "LastDataLength": 0}, "FileType": ".log",
    }  # fmt: skip


def value(*files: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in (len(files), *files))


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "storage" / "receiver_filelog_shop"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def read(tmp_path: Path, *files: dict[str, Any], made: Callable[[dict[bytes, bytes]], bytes] = inline) -> PeerState:
    return otel_storage.read(written(tmp_path, made({b"file_input.knownFiles": value(*files), b"other": b"x"})).parent)


@pytest.mark.parametrize("made", [inline, branched])
@pytest.mark.parametrize("has_path", [False, True])
def test_the_agent_goes_on_where_a_receiver_was(tmp_path: Path, log: Path, made: Any, has_path: bool) -> None:
    others = [known(b"other %d" % number + b"x" * 900, number) for number in range(20)] if made is branched else []
    state = read(tmp_path, *others, known(LINES[:8], 8, str(log) if has_path else ""), made=made)
    takeover = taken_over(successor(log), state=state)
    assert judged(takeover)["app.log"].why == "same first 8 bytes, a line ends before byte 8, 6 bytes more since"
    assert read_on(log, takeover.rows["app"]) == [b"three"]


def test_a_file_that_bbolt_itself_has_written_is_read(tmp_path: Path) -> None:
    (found,) = otel_storage.read(written(tmp_path, zlib.decompress(base64.b64decode(BY_BBOLT)))).positions
    assert (found.position, found.head and found.head.value) == (40, b"file 0\n")


def test_positions_that_a_real_receiver_has_written_as_protobuf_are_taken(tmp_path: Path, log: Path) -> None:
    state = otel_storage.read(written(tmp_path, zlib.decompress(base64.b64decode(BY_RECEIVER))))
    takeover = taken_over(successor(log), state=state)
    assert judged(takeover)["app.log"].why == "same first 8 bytes, a line ends before byte 8, 6 bytes more since"
    assert read_on(log, takeover.rows["app"]) == [b"three"]


def test_a_rotated_file_that_does_not_prove_its_position_is_named_once_with_what_becomes_of_it(tmp_path: Path, log: Path) -> None:
    state = read(tmp_path, known(LINES[:8], 6))
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"new\n")
    told = taken_over(successor(log.with_name("app.log*")), state=state).decisions
    (rotated,) = [one for one in told if one.path.endswith(".1")]
    assert (rotated.taken, rotated.is_there) == (False, True)
    assert "from the beginning" in rotated.then


def test_files_of_earlier_polls_are_read_as_well(tmp_path: Path) -> None:
    content = inline(
        {b"$.file_input.knownFiles": value(known(b"a", 1)), b"$.file_input.knownFiles12": value(known(b"b", 2), known(b"", 0))}
    )
    found = otel_storage.read(written(tmp_path, content)).positions
    assert [one.position for one in found] == [1, 2, 0]
    assert found[2].unusable


def test_first_bytes_that_several_files_have_say_nothing(tmp_path: Path, log: Path) -> None:
    log.with_name("b.log").write_bytes(LINES)
    takeover = taken_over(successor(log.with_name("*.log")), state=read(tmp_path, known(LINES[:8], 8)))
    assert offsets(takeover) == {}
    assert "2 files have the same first 8 bytes" in judged(takeover)["b.log"].why


def test_a_rotated_file_is_found_by_its_first_bytes(tmp_path: Path, log: Path) -> None:
    state = read(tmp_path, known(LINES[:8], 8))
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"new\n")
    takeover = taken_over(successor(log), state=state)
    assert sorted(read_on(log, takeover.rows["app"])) == [b"new", b"three"]


def test_hostile_files_are_refused_with_words(tmp_path: Path) -> None:
    assert "No such file" in refused("otel", tmp_path / "none")
    path = written(tmp_path, b"")
    assert "no page of it" in refused("otel", path)
    whole = inline({b"file_input.knownFiles": value(known(b"a", 1))})
    used = whole[: 2 * SIZE + 400]
    for content in (used, whole[:SIZE], whole[: 2 * SIZE], whole[: 2 * SIZE + 20], whole[: 2 * SIZE + 50]):
        path.write_bytes(content)
        otel_storage_or_words(path)
    head, rest = whole[: 2 * SIZE], whole[2 * SIZE :]
    for at in range(400):
        path.write_bytes(head + rest[:at] + bytes([rest[at] ^ 0x55]) + rest[at + 1 :])
        otel_storage_or_words(path)
    assert_never_crashes("otel", path, meta(0, 2, 1)[:80], path)


def otel_storage_or_words(path: Path) -> None:
    """It is read, or refused with words."""
    with suppress(CopycatError):
        otel_storage.read(path)


def test_pages_in_a_circle_end(tmp_path: Path) -> None:
    whole = bytearray(branched({b"a": b"b"}))
    whole[3 * SIZE + 16 + 8] = 3  # the branch leads to itself
    assert "met twice" in refused("otel", written(tmp_path, bytes(whole)))


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (value(known(b"a", -1)), "an Offset is"),
        (value(known(b"a", 1.5)), "an Offset is"),
        (b"2\n{}\n", "files were to follow"),
        (b"1\n[]\n", "files were to follow"),
        (b"\x0a\x05hello", "wire type"),
        (b"\x0a\x7fhello", "is cut"),
        (b"\x08" + b"\xff" * 20, "is cut"),
        (b"\x10\x01", "neither JSON nor a list of files"),
        (b"\x0a\x0b\x10" + b"\xff" * 9 + b"\x01", "an Offset is"),
        (b"\x0a\x02\x08\x01", "is a number"),
        (b"\x0a\x04\x22\x02{x", "not JSON"),
        (value({"Fingerprint": {"first_bytes": "%%"}, "Offset": 1}), "no base64"),
        (value(known(b"a", 1, "/a\0b")), "no text"),
    ],
)
def test_what_is_no_list_of_files_is_refused(tmp_path: Path, held: bytes, why: str) -> None:
    assert why in refused("otel", written(tmp_path, inline({b"file_input.knownFiles": held})))
