"""One agent, one connector over a directory of logs, one topic: what is written, what arrives, what the agent says meanwhile."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from copycat_agent.api import AgentClient
from copycat_agent.errors import CopycatError
from tests.kill.load import Topic
from tests.rig.agent import AgentProcess
from tests.rig.background import Background
from tests.rig.kafka import create_topic, unique_topic
from tests.rig.ledger import Ledger
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.rig.ledger import LedgerWriter, Verdict

_TICK_SECONDS = 0.05
_SAMPLE_SECONDS = 0.5


class Scene:
    """`logs`, `topic`, `ledger` and an `agent` that is not started. Leaves nothing behind when it is closed."""

    def __init__(
        self, root: Path, bootstrap: str, command: Sequence[str] = (), agent: AgentProcess | None = None, name: str = "app", **sections: Any
    ) -> None:
        """`command`: what to put before `python -m copycat_agent run`. `agent`: one that runs, for several scenes.

        `sections` go over the definition of the connector `name`.
        """
        self.logs = root / "logs"
        self.logs.mkdir(parents=True)
        self.bootstrap = bootstrap
        self.name = name
        self.topic = create_topic(bootstrap, unique_topic())
        self.partitions = 1
        self.ledger = Ledger()
        self._own = agent is None
        self.agent = agent or AgentProcess(root / "agent", bootstrap)
        self.agent._command[:0] = command
        self.define(**sections)

    def define(self, **sections: Any) -> None:
        """Make the connector read `logs/*.log` into `topic`, scanning every 500 ms."""
        source = {"type": "log_file", "include": [f"{self.logs}/*.log"], "scan_interval": "500ms", **sections.pop("source", {})}
        record = {"topic": self.topic, **sections.pop("record", {})}
        self.agent.define(self.name, {"source": source, "record": record, **sections})

    def writer(self, name: str = "app.log") -> LedgerWriter:
        """A writer of numbered lines to a file in `logs`."""
        return self.ledger.writer(self.logs / name, name)

    def start(self, env: Mapping[str, str] | None = None) -> Self:
        """Start the agent and return when what is written by now has arrived."""
        self.agent.start(env=env)
        self.wait_arrived()
        return self

    def verdict(self, deadline: float = 60.0) -> Verdict:
        """What became of all lines, once all have arrived or the deadline has passed."""
        return self.ledger.verify_topic(self.bootstrap, self.topic, deadline=deadline)

    def wait_arrived(self, deadline: float = 150.0) -> None:
        """Wait until as many records are in the topic as lines are written by now. An agent takes a minute to start on a busy machine."""
        goal = self.ledger.written
        with Topics(self.bootstrap, self.topic, self.partitions) as topic:
            wait_until(
                lambda: topic.size() >= goal, deadline,
                lambda: f"{topic.size()} of {goal} lines there; the log ends:\n{self.agent.log[-3000:]}",
            )  # fmt: skip

    def settle(self) -> None:
        """Wait until every byte is read, acknowledged and saved."""
        wait_until(lambda: self.status["lag"]["bytes"] == 0, 60, lambda: f"{self.status}")

    def ask(self, path: str) -> Any:
        """What the agent answers on its socket."""
        return AgentClient(self.agent.state_dir / "agent.sock").get(path)

    @property
    def status(self) -> dict[str, Any]:
        """What the agent says about the connector."""
        return dict(self.ask(f"/v1/connectors/{self.name}"))

    @property
    def state(self) -> str:
        """The connector's state, "" when the agent does not answer."""
        with suppress(CopycatError):
            return str(self.status["state"])
        return ""

    def events(self, level: str = "") -> list[dict[str, Any]]:
        """The agent's log so far, one value per line; of this level only."""
        whole, _, _ = self.agent.log.rpartition("\n")  # what is behind it is being written
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if level in ("", line["level"])]

    def close(self) -> None:
        """End everything; of an agent that others use too, the connector."""
        self.ledger.close()
        if self._own:
            self.agent.close()
        else:
            self.agent.undefine(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Topics(Topic):
    """`Topic` as a context manager, for any number of partitions that it has now."""

    def __init__(self, bootstrap: str, name: str, partitions: int = 1) -> None:
        super().__init__(bootstrap, name, partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Trickle(Background):
    """Appends lines to some writers until the block is left, `per_second` in all. Rotates them by rename every `rotate_seconds`."""

    def __init__(self, writers: Sequence[LedgerWriter], per_second: int = 500, rotate_seconds: float = 0.0) -> None:
        self._writers = writers
        self._lines = max(1, round(per_second * _TICK_SECONDS / len(writers)))
        self._rotate_seconds = rotate_seconds
        self.rotations = 0
        super().__init__("trickle")

    def _work(self) -> None:
        rotate_at = time.monotonic() + self._rotate_seconds
        while not self._stop.wait(_TICK_SECONDS):
            for writer in self._writers:
                writer.write_block(self._lines)
            if self._rotate_seconds and time.monotonic() > rotate_at:
                self._rotate()
                rotate_at += self._rotate_seconds

    def _rotate(self) -> None:
        """To a name that matches too, so that nothing depends on how many files may be held open."""
        self.rotations += 1
        for writer in self._writers:
            writer.path.rename(writer.path.with_name(f"{writer.path.stem}-{self.rotations:04d}.log"))
            writer.reopen()


class Memory:
    """Samples what the agent and all it started allocate, while the block runs.

    Pages of files do not count: agents of other tests map the same class archive, and when one of them ends, the kernel charges
    its share of these pages to those that stay.
    """

    def __init__(self, agent: AgentProcess) -> None:
        self.samples: list[tuple[float, float]] = []
        """Seconds since the beginning, MiB."""
        self._agent = agent
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def mark(self) -> int:
        """How many samples there are: the boundary between two parts of a test."""
        return len(self.samples)

    def most(self, start: int = 0, stop: int | None = None) -> float:
        """The largest sample of a part, in MiB."""
        return max((mib for _, mib in self.samples[start:stop]), default=0.0)

    def mean(self, start: int = 0, stop: int | None = None) -> float:
        """The mean of a part, in MiB."""
        part = [mib for _, mib in self.samples[start:stop]]
        return sum(part) / len(part) if part else 0.0

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self.samples.append((time.monotonic() - self._began, total_mib(self._agent)))


def total_mib(agent: AgentProcess) -> float:
    """Anonymous and shared memory of the driver and all below it, in MiB: pages that several of them share count once (PSS)."""
    return sum(_allocated_kib(process.pid) for process in [psutil.Process(agent.pid), *agent.descendants()]) / 1024


def _allocated_kib(pid: int) -> int:
    """0 for a process that has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
