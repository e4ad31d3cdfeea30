"""The loop: kills what the plan says, has it started again as a service manager would, and looks at what arrives meanwhile."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from benchmarks.kill_loop_findings import Findings, Struck
from benchmarks.kill_loop_plan import Kill, Victim, places, planned, spelled
from copycat_agent.dev_broker import DevBroker
from copycat_agent.failpoints import ONCE, VARIABLE
from tests.kill.lake_load import LakeLoad
from tests.rig.agent import AgentProcess, is_alive
from tests.rig.verifier import Later, Verifier

if TYPE_CHECKING:
    from benchmarks.kill_loop_end import LoopEnd
    from tests.kill.both import Load
    from tests.kill.jdbc_load import JdbcLoad
    from tests.kill.journal_load import JournalLoad
    from tests.kill.lake_load import FilesVerifier
    from tests.kill.object_load import ObjectLoad
    from tests.kill.topic_load import TopicLoad

_LOOK_SECONDS = 0.02
_RECOVER_SECONDS = 180.0
_FOUND_SECONDS = 120.0
_FIRED_SECONDS = 120.0
"""An agent that is to kill itself at a failpoint and has not by then is killed by us, and counted as a miss."""
_PROVOKE_SECONDS = 3.0
_GONE_SECONDS = 180.0
"""A JVM writes down, as it ends, what it had loaded, if none has before: seconds, and more than a minute where 20 processes wait."""
_STOP_SECONDS = 60.0
_MOST_ENDS = 3
_MOST_MISSES = 2
"""A failpoint that was missed so often, and never hit, is not tried again."""
_CHECK_EVERY = 50
_MOST_PENDING = 4
"""So many kills at failpoints may wait for the next start of the agent; then it is stopped for them."""


PROJECT = Path(__file__).parents[1]
"""The agent imports the data source of the loop from here."""


class Asked(NamedTuple):
    """`note` is called after every kill: it saves what is known."""

    seed: int
    guarantee: str
    note: Callable[[], None]


class Loop:
    """One run. `strike_all` until enough are killed or the time is over, then `settle`."""

    def __init__(
        self,
        agent: AgentProcess,
        broker: DevBroker,
        load: Load | JournalLoad | TopicLoad | ObjectLoad | JdbcLoad,
        verifier: Verifier | FilesVerifier,
        findings: Findings,
        asked: Asked,
    ) -> None:
        self.findings = findings
        self._agent = agent
        self._broker = broker
        self._load = load
        self._verifier = verifier
        self._seed, self._guarantee, self._note = asked
        self._is_started = False
        self._ended = 0
        self._place = ""
        """The failpoint that the agent was started with."""
        self._once = agent.root / "failpoint"
        """Made by the process that kills itself, with its pid."""
        self._later: Later | None = None
        self._open: Struck | None = None

    def begin(self) -> None:
        """One start and stop without a kill: the first JVM of an installation records an archive as it ends, and may outlive its driver."""
        self._up()
        later = self._verifier.committed.await_after(self._load.counts())
        if not self._wait(lambda: later.seconds is not None, _RECOVER_SECONDS):
            raise RuntimeError(f"nothing arrives: {self._agent.log[-2000:]}")
        self._stop()

    def strike_all(self, kills: int, end: LoopEnd) -> None:
        """Kill until `kills` are done, or the end has come."""
        done = self.findings.struck
        while len(done) < kills and not end.has_come:
            before = len(done)
            self._up()
            self._next(planned(self._seed, self.findings.planned))
            self.findings.planned += 1
            if len(done) // _CHECK_EVERY > before // _CHECK_EVERY:
                self._check()
                self._load.resume()

    def _next(self, kill: Kill) -> None:
        if kill.victim == "planner" and not self._load.has_planner:
            kill = replace(kill, victim="worker")
        if kill.moment == "failpoint" and self._places(kill.victim):
            self.findings.pending.append(kill)
            if len(self.findings.pending) > _MOST_PENDING:
                self._recovered()
                self._stop()
        else:
            self._strike(replace(kill, moment="random") if kill.moment == "failpoint" else kill)

    def _places(self, victim: Victim) -> list[str]:
        """Failpoints that such a process comes to; none that it has only missed so far."""
        names = places(victim, self._guarantee, has_spool=self._load.has_spool, into_files=isinstance(self._load, LakeLoad))
        fired = {one.place for one in self.findings.struck if one.fired}
        return [name for name in names if name in fired or self.findings.misses[name] < _MOST_MISSES]

    def settle(self) -> None:
        """Start the agent once more, without anything in its way, and wait until everything has arrived; then stop it as a person would."""
        self.findings.pending.clear()
        self._up()
        self._recovered()
        self._check()
        if not self._wait(self._load.is_cleaned_up, _GONE_SECONDS):
            self._broke("what is delivered is not cleaned up")
        self._stop()

    # Kills

    def _strike(self, kill: Kill) -> None:
        if kill.moment != "start":
            self._recovered()
        time.sleep(kill.delay_seconds)
        if kill.stop_seconds:
            self._freeze(kill)
        if kill.victim == "broker":
            self._kill_broker(kill)
        elif kill.victim in {"driver", "all"}:
            self._kill_agent(kill)
        else:
            self._kill_child(kill)

    def _kill_agent(self, kill: Kill) -> None:
        """The driver, or it and everything it started, one after the other as fast as that goes."""
        if not self._agent.is_running:
            return
        others = self._agent.descendants()
        self._done(Struck(kill.number, kill.victim, kill.moment, time.time()))
        for process in others if kill.victim == "all" else ():
            _kill(process)
        self._kill_driver()
        self._up()

    def _kill_child(self, kill: Kill) -> None:
        target = self._found(kill)
        if target is None:
            return
        self._done(Struck(kill.number, kill.victim, kill.moment, time.time()))
        _kill(target)
        self._wait(lambda: not is_alive(target), _GONE_SECONDS)

    def _kill_broker(self, kill: Kill) -> None:
        self._done(Struck(kill.number, kill.victim, kill.moment, time.time()))
        self._broker.kill()
        time.sleep(kill.delay_seconds)
        self._broker.start()

    def _kill_driver(self) -> None:
        with suppress(AssertionError):
            self._agent.signal(signal.SIGKILL)
        self._agent.wait(_GONE_SECONDS)
        self._gone()

    def _gone(self) -> None:
        """Nothing that the agent had started survives it."""
        if not self._wait(lambda: not self._agent.descendants(), _GONE_SECONDS):
            self._broke(f"survived the driver: {self._agent.descendants()}")
            for process in self._agent.descendants():
                _kill(process)

    def _freeze(self, kill: Kill) -> None:
        """SIGSTOP, for a while, of the driver, a worker, the JVM, or all of them."""
        everything = [psutil.Process(self._agent.pid), *self._agent.descendants()] if self._agent.is_running else []
        if not everything:
            return
        dice = random.Random(f"{self._seed}/stop/{kill.number}")
        chosen = everything if dice.random() < 0.5 else [dice.choice(everything)]
        self._say(f"stops {len(chosen)} processes for {kill.stop_seconds:.0f} s")
        for process in chosen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        time.sleep(kill.stop_seconds)
        for process in chosen:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        self.findings.stops.append(kill.stop_seconds)

    def _found(self, kill: Kill) -> psutil.Process | None:
        """The process to kill, waited for; None when it did not come (the agent ended, or it is in trouble)."""
        end = time.monotonic() + _FOUND_SECONDS
        while time.monotonic() < end:
            self._up()
            pythons, planners = self._pythons()
            some = {"jvm": [self._agent.jvm()], "daemon": pythons[:1], "worker": pythons[1:], "planner": planners}[kill.victim]
            if some and some[0] is not None:
                return random.Random(f"{self._seed}/which/{kill.number}").choice(some)
            time.sleep(_LOOK_SECONDS)
        self._broke(f"no {kill.victim} within {_FOUND_SECONDS:.0f} s")
        return None

    def _pythons(self) -> tuple[list[psutil.Process], list[psutil.Process]]:
        """Spark's Python daemon and its workers; and processes that sources have beside them: data sources plan there, journalctl reads."""
        journalctls = [one for one in self._agent.descendants() if _is_journalctl(one)]
        found: tuple[list[psutil.Process], list[psutil.Process]] = ([], journalctls)
        for one in self._agent.python_processes():
            with suppress(psutil.Error):
                found["copycat_agent.sources.datasource" in " ".join(one.cmdline())].append(one)
        return found

    # The agent's life

    def _up(self) -> None:
        """See that an agent runs that has no failpoint of the driver ahead of it."""
        while not self._agent.is_running:
            self._note_end()
            kill = self.findings.pending.pop(0) if self.findings.pending else None
            self._start(kill)
            if kill is not None:
                self._await_failpoint(kill)

    def _note_end(self) -> None:
        """The one before has ended: by us, by a failpoint, or by itself."""
        code = self._agent.wait(1) if self._is_started else 0
        if code == 75:
            self.findings.gave_up += 1
            self._say("the agent gave up: exit 75")
            self._gone()
        elif code not in {0, -signal.SIGKILL}:
            self._ended += 1
            self._broke(f"the agent ended by itself with exit {code}: {self._agent.log[-600:]}")
            self._gone()
            if self._ended > _MOST_ENDS:
                raise RuntimeError("the agent ends by itself again and again")

    def _start(self, kill: Kill | None) -> None:
        self._is_started = True
        env = {VARIABLE: "", ONCE: str(self._once), "PYTHONPATH": str(PROJECT)}
        if kill is not None:
            self._once.unlink(missing_ok=True)
            hits = Counter(one.place for one in self.findings.struck if one.fired) + self.findings.misses
            self._place = min(self._places(kill.victim), key=lambda name: hits[name])
            env[VARIABLE] = spelled(self._place, kill.nth)
        self._agent.start(env=env)

    def _await_failpoint(self, kill: Kill) -> None:
        """Some process of the agent kills itself there; a recovery is provoked where the place needs one."""
        end = time.monotonic() + _FIRED_SECONDS
        provoke_at = time.monotonic() + _PROVOKE_SECONDS
        while not (pid := self._fired()) and self._agent.is_running and time.monotonic() < end:
            if self._place == "recovering" and time.monotonic() > provoke_at:
                provoke_at = time.monotonic() + _PROVOKE_SECONDS
                self._provoke()
            time.sleep(_LOOK_SECONDS)
        if not (pid or self._fired()):
            self._miss(kill)
            return
        is_driver = self._fired() == self._agent.pid
        self._done(Struck(kill.number, "driver" if is_driver else "worker", "failpoint", time.time(), self._place, fired=True))
        if is_driver:
            if (code := self._agent.wait(_GONE_SECONDS)) != -signal.SIGKILL:
                self._broke(f"the driver came to {self._place} and ended with {code}")
            self._gone()

    def _fired(self) -> int:
        """The process that has killed itself at the failpoint; 0 while none has."""
        try:
            pid = int(self._once.read_text())
        except (FileNotFoundError, ValueError):
            return 0
        if pid == self._agent.pid:
            return 0 if self._agent.is_running else pid
        return 0 if _lives(pid) else pid

    def _miss(self, kill: Kill) -> None:
        """Nobody came there in time: the driver is killed by us instead, so that nobody does later."""
        self.findings.misses[self._place] += 1
        self._say(f"did not come to {spelled(self._place, kill.nth)}")
        if self._agent.is_running:
            self._done(Struck(kill.number, "driver", "random", time.time()))
            self._kill_driver()

    def _provoke(self) -> None:
        """kill -9 of a worker, so that an outcome may be unknown: a kill like any other."""
        for worker in self._pythons()[0][1:2]:
            self._done(Struck(-1, "worker", "random", time.time()))
            _kill(worker)

    def _stop(self) -> None:
        """SIGTERM: no kill. It may take what is in flight."""
        if self._agent.is_running:
            try:
                self._agent.stop(_STOP_SECONDS)
            except AssertionError as error:
                self._broke(f"SIGTERM: {str(error)[:300]}")
                self._kill_driver()

    # What arrives

    def _done(self, struck: Struck) -> None:
        """Note a kill, and begin to wait for what is written after it."""
        self._take_recovery()
        self._open, self._later = struck, self._verifier.committed.await_after(self._load.counts())
        self.findings.struck.append(struck)
        self._note()
        self._say(f"{struck.victim} ({f'at {struck.place}' if struck.fired else struck.moment})")

    def _take_recovery(self) -> None:
        if self._open is not None and self._later is not None:
            self._open.seconds = self._later.seconds
        self._open = self._later = None

    def _recovered(self) -> None:
        """Wait until something arrives that was written after the last kill."""
        while self._open is not None and self._later is not None and self._later.seconds is None:
            if time.time() - self._open.at > _RECOVER_SECONDS:
                self._broke(f"nothing arrives {_RECOVER_SECONDS:.0f} s after it: {self._agent.log[-600:]}")
                self._kill_driver()
                break
            self._up()
            time.sleep(_LOOK_SECONDS)
        self._take_recovery()

    def _check(self) -> None:
        """Write nothing until all has arrived: what is lost shows here, near to where it was."""
        self._up()
        self._load.pause()
        counts = self._load.counts()
        whole = self._verifier.wait_all(counts, 900.0, 180.0)
        verdict = self._verifier.committed.verdict(counts)
        told = ", ".join(f"{name} {verdict[name]:,}" for name in ("lost", "duplicated", "phantom", "corrupt", "reordered"))
        self._say(f"check: {sum(counts.values()):,} lines written, {told}")
        if not whole:
            self._broke(f"not all has arrived: {verdict['examples']}")

    def _broke(self, what: str) -> None:
        self.findings.broken.append(f"after kill {len(self.findings.struck)}: {what}")
        self._say(f"BROKEN: {what}")

    def _say(self, words: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {len(self.findings.struck):4d} kills  {words}", file=sys.stderr, flush=True)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
        return True


def _is_journalctl(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "journalctl"
    return False


def _lives(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()
