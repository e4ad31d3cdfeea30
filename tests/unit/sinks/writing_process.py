"""A process that writes offsets into files until the chain is at its end: `python -m tests.unit.sinks.writing_process URI END SEED`."""

from __future__ import annotations

import json
import random
import sys

from copycat_agent.errors import RetriableError
from copycat_agent.sinks.claims import Claims, LocalFile, Range
from copycat_agent.sinks.sink_stores import store_at


def main(uri: str, end: int, seed: int) -> None:
    """Cuts and files are by the dice."""
    rng, store = random.Random(seed), store_at(uri)
    claims = Claims(store, "c", kept=3)
    first = 0
    while first < end:
        try:
            first = claims.resume("t", 0, 0, known=first)
            last = min(end - 1, first + rng.randint(0, 9))
            files = []
            for number in range(rng.randint(1, 3)):
                path = store.scratch() / f"{first}-{number}"
                path.write_text(json.dumps([one for one in range(first, last + 1) if one % 3 == number]))
                files.append(LocalFile(path, f"d{number}", 1))
            if len(files) < 3:
                files[-1].path.write_text(json.dumps([one for one in range(first, last + 1) if one % 3 >= len(files) - 1]))
            if first <= last:
                first = claims.commit(Range("t", 0, first, last), files, "json").end
        except RetriableError:
            continue


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
