"""What is kept of an object while it is open, and what has to be fetched again."""

from __future__ import annotations

import tracemalloc

from copycat_agent.sources.objects.blocks import JUMP_BYTES, BlockFile

SIZE = 2**20


class Fetched:
    """One object, and the pieces of it that were asked for."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, int]] = []
        self.file = BlockFile(SIZE, self.fetch)

    def fetch(self, position: int, size: int) -> bytes:
        self.pieces.append((position, size))
        return bytes(size)


def test_objects_that_were_read_to_their_end_and_wait_for_kafka_keep_no_block_of_theirs() -> None:
    tracemalloc.start()
    try:
        files = []
        for _ in range(16):
            one = Fetched()
            one.file.read_at(0, 1024)
            for begin in range(0, SIZE, SIZE // 4):
                assert len(one.file.read_at(begin, SIZE // 4)) == SIZE // 4
            files.append(one)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 16 * 3 * JUMP_BYTES
    assert files[0].file.read_at(SIZE - 1024, 1024) == bytes(1024)
    assert files[0].file.read_at(0, 1024) == bytes(1024)
    assert files[0].pieces == [(0, SIZE)], "what is compared once more is there"
    assert len(files[0].file.read_at(JUMP_BYTES, 2 * JUMP_BYTES)) == 2 * JUMP_BYTES, "what is sent again is fetched again"


def test_one_that_is_read_with_jumps_is_fetched_once() -> None:
    one = Fetched()
    one.file.read_at(0, 4)
    one.file.read_at(SIZE - 8, 8)
    one.file.read_at(2**18, 2**18)
    one.file.read_at(2**17, 2**17)
    assert one.pieces == [(0, SIZE)]
