"""One kill after the other: who is killed, how, and what is measured until records arrive again."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from tests.rig.agent import is_alive
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import psutil

    from tests.kill.load import Load, Topic
    from tests.rig.agent import AgentProcess

Victim = Literal["driver", "start", "jvm", "worker", "daemon"]
"""`start`: the driver again, while it is still starting."""

ROUND: tuple[Victim, ...] = ("driver", "start", "jvm", "worker", "daemon")
"""One JVM in each, and a driver: three JVMs that die young in a row are, rightly, the end of an agent."""
SHORT_ROUND: tuple[Victim, ...] = ("start", "jvm", "worker", "daemon")
"""`start` begins with what `driver` is."""

START_LINES = 6000
"""An agent that starts is killed within the time that so many lines take (about 4 s)."""


def schedule(dice: random.Random, rounds: int, victims: tuple[Victim, ...] = ROUND) -> list[Victim]:
    """Every round in another order."""
    return [victim for _ in range(rounds) for victim in dice.sample(victims, len(victims))]


def found(find: Callable[[], psutil.Process | None], message: Callable[[], str]) -> psutil.Process:
    """The process that `find` finds, waited for."""
    process = wait_until(find, 60, message)
    assert process is not None
    return process


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait until it is dead."""
    process.kill()
    wait_until(lambda: not is_alive(process), 60, lambda: f"{process} does not die")


def kill_worker(agent: AgentProcess) -> None:
    """`kill` one of the agent's workers."""
    kill(found(lambda: next(iter(agent.python_processes()[1:]), None), lambda: f"no worker: {agent.descendants()}"))


class Killer:
    """Kills processes of a running agent under load, and knows what it did."""

    def __init__(self, agent: AgentProcess, load: Load, topic: Topic, dice: random.Random) -> None:
        self._agent = agent
        self._load = load
        self._topic = topic
        self._dice = dice
        self.recoveries: dict[Victim, list[float]] = defaultdict(list)
        """Seconds from each kill until records arrived again, by victim."""

    @property
    def kills(self) -> int:
        """How many so far."""
        return sum(map(len, self.recoveries.values()))

    def strike(self, victim: Victim) -> None:
        """Kill `victim` at a random line of the load, and return when records arrive again."""
        if victim == "start":
            self._kill_driver()
            self._agent.start()
            self._load.wait_lines(self._dice.randrange(START_LINES))
        else:
            self._load.wait_lines(self._dice.randrange(1500))
        began = time.monotonic()
        if victim in {"driver", "start"}:
            self._kill_driver()
            self._agent.start()
        else:
            self._kill_child(victim)
        self._topic.wait_growth()
        self.recoveries[victim].append(time.monotonic() - began)

    def report(self) -> str:
        """One line per kind of victim."""
        return "\n".join(
            f"{victim}: {len(seconds)} kills, recovery median {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s"
            for victim, seconds in sorted(self.recoveries.items())
        )

    def _kill_driver(self) -> None:
        """Asserts that nothing it had started survives it."""
        self._agent.kill()

    def _kill_child(self, victim: Victim) -> None:
        """Kill a process of the agent; return when it, and what hangs on it, is gone, so that what comes next is new."""
        target = found(self._finder(victim), lambda: f"no {victim}: {self._agent.descendants()}")
        dependants = {"jvm": self._agent.python_processes, "daemon": self._workers, "worker": list}[victim]()
        kill(target)
        wait_until(lambda: not any(map(is_alive, dependants)), 60, lambda: f"{victim} {target} is dead, not all of {dependants}")

    def _finder(self, victim: Victim) -> Callable[[], psutil.Process | None]:
        return {
            "jvm": self._agent.jvm,
            "daemon": lambda: next(iter(self._agent.python_processes()), None),
            "worker": lambda: self._dice.choice(workers) if (workers := self._workers()) else None,
        }[victim]

    def _workers(self) -> list[psutil.Process]:
        return self._agent.python_processes()[1:]
