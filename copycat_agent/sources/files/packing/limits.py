"""How much a packed file may hold before it is taken for a bomb."""

from __future__ import annotations

from copycat_agent.options import ByteSize, Field, Options

FREE_BYTES = 64 * 2**20
"""Of no file less than this is too much, however few packed bytes hold it."""


class UnpackOptions(Options):
    """What a packed file may hold. A file beyond it is a bad file; what was unpacked of it before has been delivered."""

    max_ratio: int = Field(
        500,
        ge=10,
        le=1_000_000,
        description="At most so many times its packed size, once more than 64 MiB were unpacked. Logs reach 20 to 200.",
    )
    max_bytes: ByteSize | None = Field(None, ge=2**20, description="At most so much, unpacked; absent: no bound but max_ratio.")


def excess(limits: UnpackOptions, produced: int, taken: int) -> str:
    """Why a file of which `taken` packed bytes made `produced` unpacked ones is over the limits; "" while it is not."""
    if limits.max_bytes is not None and produced > limits.max_bytes:
        return f"it holds more than unpack.max_bytes, {limits.max_bytes} bytes"
    if produced > FREE_BYTES and produced > limits.max_ratio * taken:
        return f"it holds more than unpack.max_ratio, {limits.max_ratio} times its packed size"
    return ""
