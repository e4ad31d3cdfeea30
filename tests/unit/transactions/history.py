"""One seeded history: an agent, its files, a broker, and everything that goes wrong; then a verdict.

A history is chosen by its seed alone: which faults it has, when, and who takes the next step. After `budget` turns nothing goes wrong any
more, everything late arrives, everybody goes on to the end, and what a read_committed reader sees is compared with what was written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from copycat_agent.errors import RetriableError
from copycat_agent.model import OFFSETS_TOPIC, Head, SourceOffset
from copycat_agent.transactions import entries
from copycat_agent.transactions.opening import LaneGroup
from copycat_agent.transactions.protocol import Entry, Step
from tests.unit.transactions.agents import SECOND_LOOK, UUID, Acts, Agent, File, Local, Runner, place_of
from tests.unit.transactions.broker import WAIT, Broker, Log, Record

HEALING_TURNS = 40_000


class BrokenPromiseError(AssertionError):
    """The verdict."""


@dataclass(slots=True, eq=False)
class Actor:
    """Somebody who takes steps: the generator, and the step it stands before."""

    acts: Acts
    owner: Any
    step: Step | Local | None = None
    has_committed: bool = False


@dataclass(slots=True)
class History:
    """See above. `trace` is what happened, when it is asked for.

    `kind`: "copies", where two agents with one identity meet; "cut off", where leaders are, and show what they still have; "lost store",
    where that befalls who has lost its store; "upgrade", where an agent of the version before ids is upgraded.
    """

    seed: int
    kind: str = ""
    budget: int = 0
    traced: bool = False
    without: frozenset[str] = frozenset()
    trace: list[str] = field(default_factory=list)

    @property
    def copies(self) -> bool:
        """Whether two agents with one identity meet."""
        return self.kind == "copies"

    @property
    def cut_off(self) -> bool:
        """Whether leaders are cut off."""
        return self.kind in {"cut off", "lost store"}

    def run(self) -> None:
        """Raises BrokenPromiseError."""
        _Run(self).run()


_COMMON = ("kill runner", "kill driver", "freeze runner", "restart", "rest")
_RARE = ("roll back", "delete store", "truncate", "tasks", "rename", "switch", "clone", "empty")


class _Run:
    def __init__(self, history: History) -> None:
        self.history = history
        self.rng = rng = random.Random(history.seed)
        self.tell: Callable[[str], None] = history.trace.append if history.traced else lambda _: None
        faults = rng.sample(_COMMON, rng.randint(1, 3)) + rng.sample(_RARE, rng.choice((0, 0, 1, 1, 2)))
        if history.copies:
            faults = ["clone", "restart", "restart", *rng.sample(_COMMON, rng.randint(0, 1))]
        if history.cut_off:
            common = ("kill driver", "kill driver", "kill runner", "freeze runner", "restart")
            faults = ["cut off", *rng.sample(common, 2), *rng.sample(("roll back", "delete store", "tasks", "rename"), 1)]
        if history.kind == "lost store":
            faults = ["cut off", "delete store", "delete store", rng.choice(("rename", "kill driver"))]
        if history.kind == "upgrade":
            faults = ["upgrade", *rng.sample(("kill runner", "kill driver", "freeze runner"), 2)]
            faults += rng.sample(("roll back", "roll back", "delete store", "rename", "tasks"), 1)
        self.faults = tuple(one for one in faults if one not in history.without)
        trouble = rng.choice((0.0, 0.03, 0.1))
        self.time_outs = rng.choice((0.0, 0.0, 0.02))
        self.fault_rate = rng.choice((0.01, 0.03, 0.06))
        self.stop_rate = rng.choice((0.0, 0.0, 0.02, 0.05))
        if history.copies:  # they have to meet between any two steps
            self.stop_rate, self.fault_rate = 0.05, rng.choice((0.03, 0.08))
        if history.cut_off:
            self.fault_rate = rng.choice((0.01, 0.03))
        self.stopped: dict[int, int] = {}
        self.budget = rng.randint(40, 220)
        self.budget = min(self.budget, history.budget or self.budget)
        self.broker = Broker(rng, trouble=trouble, verifies=rng.random() < 0.5, tell=self.tell)
        self.files = [File(f"f{n}", rng.randint(1, 8)) for n in range(rng.randint(1, 3))]
        if "clone" in self.faults:
            self.faults = tuple(one for one in self.faults if one not in ("empty", "rename", "switch"))
        self.agents = [Agent("x", rng, self.files, self.tell)]
        self.agents[0].has_ids = "upgrade" not in self.faults
        self.agents[0].disk.of("a").asks = not history.copies  # who met while it is looked up would be one of the two from then on
        self.actors: dict[int, Actor] = {}
        self.repeats = False
        self.is_emptied = False
        self.tell(f"seed {history.seed}: {self.faults} trouble {trouble} time-outs {self.time_outs} verifies {self.broker.verifies}")

    # Scheduling.

    def run(self) -> None:
        self.agents[0].tasks_max = 1 if self.history.copies else self.rng.randint(1, 3)
        self.agents[0].start()
        for _ in range(self.budget):
            if self.rng.random() < self.fault_rate and self.faults:
                self.fault(self.rng.choice(self.faults))
            if self.history.cut_off and self.rng.random() < 0.4:
                self.meet_who_is_cut_off()
            self.turn()
        self.heal()
        self.verdict()

    def meet_who_is_cut_off(self) -> None:
        """At the worst moment: somebody has just committed, nobody else knows it, and the next start asks who does not, either."""
        if self.broker.frozen is None:
            if self.rng.random() < 0.05:
                self.fault("cut off")
            return
        some = [one for agent in self.agents for one in agent.acting() if isinstance(one[0], Runner)]
        if any(id(acts) in self.actors and self.actors[id(acts)].has_committed for _, acts in some):
            losses = ("delete store",) * 3 if "delete store" in self.faults else ()
            self.fault(self.rng.choice(("kill driver", "kill driver", "rename", "tasks", *losses)))

    def turn(self) -> None:
        """Somebody takes a step, or something under way comes to pass."""
        rng = self.rng
        if rng.random() < 0.25:
            self.broker.tick(rng, self.time_outs)
        elif everybody := [one for agent in self.agents for one in agent.acting()]:
            owner, acts = everybody[int(rng.random() * len(everybody))]
            if self.stopped and len(everybody) > 1 and self.stopped.get(id(acts), 0) > self.broker.clock:
                return
            actor = self.actors.get(id(acts))
            if rng.random() < self.stop_rate * (4 if actor and actor.has_committed else 1):
                self.stopped[id(acts)] = self.broker.clock + rng.choice((5, 10, 30) if not self.history.copies else (20, 40))
                self.tell(f"{owner.name} is stopped for a while")
            else:
                self.step(owner, acts)

    def step(self, owner: Agent | Runner, acts: Acts) -> None:
        """Do the step that somebody stands before, and bring it to the next."""
        actor = self.actors.get(id(acts))
        try:
            if actor is None:
                actor = self.actors[id(acts)] = Actor(acts, owner)
                actor.step = next(acts)
            elif isinstance(actor.step, Local):
                if actor.step.name != SECOND_LOOK or self.broker.frozen is None:
                    actor.step = acts.send(None)
            else:
                assert actor.step is not None
                self.do(actor, actor.step)
        except StopIteration:
            self.wake()
            if isinstance(owner, Runner):
                owner.acts = None
            elif owner.driver is acts:
                owner.driver = None

    def do(self, actor: Actor, step: Step) -> None:
        try:
            self.broker.is_reached_by_asker = isinstance(actor.owner, Agent) and (self.broker.frozen is None or self.rng.random() < 0.9)
            if self.history.kind == "lost store" and step.name == "commit" and isinstance(actor.owner, Agent) and self.rng.random() < 0.15:
                self._cut_off(actor.owner)  # at the worst moment: what is told next, the leader that is cut off does not know
            world = self if step.name == "plain" else self.broker
            answer = getattr(world, step.name)(*step.arguments)
        except RetriableError as error:
            self.told(actor, step, error)
            actor.step = actor.acts.throw(error)
        else:
            if answer is not WAIT:
                actor.has_committed = step.name == "commit"
                self.told(actor, step, answer)
                actor.step = actor.acts.send(answer)

    def told(self, actor: Actor, step: Step, answer: object) -> None:
        if self.history.traced and step.name != "close":
            words = " ".join(str(getattr(one, "tid", one))[-90:] for one in step.arguments)
            zombie = " (zombie)" if getattr(actor.owner, "lost", False) else ""
            self.tell(f"  {actor.owner.name}{zombie}: {step.name} {words} -> {str(answer)[:200]}")

    def plain(self, place: Any, lines: list[tuple[str, int]]) -> None:
        """What at_least_once sends: there as soon as it is taken."""
        log = self.broker.log(place)
        trouble = self.rng.random() < self.broker.trouble
        if not trouble or self.rng.random() < 0.5:
            log.records += [Record(line, "committed") for line in lines]
        if trouble:
            raise RetriableError("produce: no answer")

    # What goes wrong.

    def fault(self, name: str) -> None:
        agent = self.rng.choice(self.agents)
        getattr(self, "_" + name.replace(" ", "_"))(agent)
        self.wake()

    def wake(self) -> None:
        """Something has happened."""
        for agent in self.agents:
            agent.idle = False

    def _kill_runner(self, agent: Agent) -> None:
        if agent.runners:
            runner = self.rng.choice(agent.runners)
            self.tell(f"{runner.name} is killed")
            agent.runners.remove(runner)
            runner.lost = runner.dead = True
            runner.acts = None

    def _freeze_runner(self, agent: Agent) -> None:
        if agent.runners:
            runner = self.rng.choice(agent.runners)
            self.tell(f"{runner.name} is given up, and goes on")
            agent.runners.remove(runner)
            runner.lost = True
            if runner.acts is not None:
                agent.zombies.append(runner)

    def _kill_driver(self, agent: Agent) -> None:
        if agent.driver is None and agent.refused is not None:
            return
        self.tell(f"{agent.name} is killed")
        agent.kill()
        agent.start()

    def _restart(self, agent: Agent) -> None:
        agent.restart_wanted = True

    def _rest(self, agent: Agent) -> None:
        for runner in agent.runners:
            if runner.acts is None:
                runner.rest()

    def _roll_back(self, agent: Agent) -> None:
        if agent.refused is None and (agent.has_ids or not agent.disk.of(agent.connector).before):
            agent.kill()
            state = self.rng.choice(agent.disk.history)
            agent.disk.kept = {name: one.copy() for name, one in state.items()}
            self.tell(f"{agent.name}: SQLite is rolled back to {agent.disk.kept}")
            agent.start()

    def _delete_store(self, agent: Agent) -> None:
        if agent.refused is None and (agent.has_ids or not agent.disk.of(agent.connector).before):
            agent.kill()
            agent.disk.kept = {}
            self.tell(f"{agent.name}: SQLite is deleted")
            agent.start()

    def _truncate(self, _: Agent) -> None:
        alive = [file for file in self.files if not file.destroyed]
        if alive:
            file = self.rng.choice(alive)
            file.destroyed = True
            self.files.append(File(f"g{len(self.files)}", self.rng.randint(1, 4)))
            self.tell(f"{file.key} is truncated")

    def _tasks(self, agent: Agent) -> None:
        if agent.refused is None:
            agent.tasks_max = self.rng.randint(1, 4)
            agent.kill()
            agent.start()

    def _rename(self, agent: Agent) -> None:
        """`renamed_from`, or `offsets rename`, while the agent does not run."""
        if agent.refused is not None or len(self.agents) > 1:
            return
        agent.kill()
        if agent.has_ids:
            agent.earlier.append(agent.connector)
            agent.connector = self.rng.choice([one for one in "abc" if one != agent.connector])
            agent.earlier = [one for one in agent.earlier if one != agent.connector]
            self.tell(f"{agent.name}: it is called {agent.connector}")
            agent.start()
            return
        old, new = agent.connector, agent.connector + "b"
        kept = agent.disk.kept.pop(old, None)
        if kept is not None and kept.published:
            kept.before = (*kept.before, LaneGroup(old, place_of(old), kept.heads))
            kept.heads = {}
            agent.disk.kept[new] = kept
            agent.disk.save()
            agent.connector = new
            agent.earlier.append(old)
            self.tell(f"{agent.name}: {old} is called {new}")
        elif kept is not None:
            agent.disk.kept[old] = kept
        agent.start()

    def _upgrade(self, agent: Agent) -> None:
        """The next version is installed."""
        if agent.refused is None and not agent.has_ids:
            agent.kill()
            agent.has_ids = True
            agent.start()

    def _switch(self, agent: Agent) -> None:
        if agent.refused is None and len(self.agents) == 1:
            agent.kill()
            agent.exact = not agent.exact
            self.repeats = True
            agent.start()

    def _clone(self, agent: Agent) -> None:
        """Not before Kafka knows the connector's id: two that look it up at once, each with a store that never knew one, are two agents."""
        is_known = bool(agent.disk.of(agent.connector).registered) or self.history.copies
        if len(self.agents) == 1 and agent.exact and is_known:
            just = [id(acts) for _, acts in agent.acting() if id(acts) in self.actors and self.actors[id(acts)].has_committed]
            if not just and self.rng.random() < 0.7:  # the worst moment is worth waiting for
                return
            self.stopped |= dict.fromkeys(just, self.broker.clock + 40)
            twin = Agent("y", self.rng, self.files, self.tell)
            twin.disk = agent.disk.copy()
            twin.connector, twin.tasks_max = agent.connector, agent.tasks_max
            self.agents.append(twin)
            self.tell("the state directory is copied, and the copy is started")
            twin.start()

    def _empty(self, agent: Agent) -> None:
        """The offsets topic is made anew; a person lets the agent go on from its positions."""
        if len(self.agents) > 1 or not agent.exact:
            return
        for place in [one for one in self.broker.logs if one.topic == OFFSETS_TOPIC]:
            self.broker.logs[place].records = []
            self.broker.logs[place].opened = {}
        self.repeats = True
        self.is_emptied = True
        self.tell("the offsets topic is emptied")

    def _cut_off(self, _: Agent) -> None:
        if self.broker.frozen is None and not any(one.is_behind for one in self.agents):
            self.broker.cut_off(OFFSETS_TOPIC, self.rng.choice((10, 30, 60)))

    # The end.

    def heal(self) -> None:
        """Nothing goes wrong any more; whoever is not refused goes on until all is done."""
        self.tell("-- nothing goes wrong any more")
        self.broker.frozen = None
        self.broker.trouble = self.time_outs = self.stop_rate = 0.0
        for agent in self.agents:
            if not agent.exact:
                agent.kill()
                agent.exact = True
                agent.start()
            self._upgrade(agent)
            if agent.driver is None and agent.refused is None:
                agent.start()
        for turn in range(HEALING_TURNS):
            if turn % 20 == 0:
                self.adopt()
                if turn and self.is_over():
                    return
            if turn % 200 == 0 and (turn == 0 or sum(one.refused is None for one in self.agents) > 1):
                self.add_late_lines()
            self.turn()
        raise BrokenPromiseError(f"it does not come to an end: {[(a.name, a.refused and a.refused.message) for a in self.agents]}")

    def add_late_lines(self) -> None:
        """Lines that are written when everything works again, so that copies of one agent meet."""
        for file in self.files:
            if not file.destroyed and (len(self.agents) > 1 or self.rng.random() < 0.6):
                file.lines += 2
        self.wake()

    def adopt(self) -> None:
        """A person reads what the agent says, and decides."""
        for agent in self.agents:
            if agent.refused is not None and len(self.agents) == 1:
                if not self.is_emptied:
                    raise BrokenPromiseError(f"refused: {agent.refused}")
                agent.disk.of(agent.connector).adopt = "local"
                self.tell(f"{agent.name}: adopt")
                agent.start()

    def is_over(self) -> bool:
        if self.broker.late or self.broker.starting or any(one.zombies and any(z.acts for z in one.zombies) for one in self.agents):
            return False
        if any(one.state != "empty" for one in self.broker.ids.values()):
            return False
        alive = [one for one in self.agents if one.refused is None]
        if not alive and "delete store" in self.faults and len(self.agents) > 1:
            return True  # each was the first one to a lane, and has lost what it knew of it: a person decides
        if not alive:
            raise BrokenPromiseError("nobody is left")
        if len(alive) > 1:
            return False
        agent = alive[0]
        kept = agent.disk.of(agent.connector)
        rows = kept.rows if kept.published and kept.registered == agent.connector and not kept.before and not kept.adopt else {}
        return bool(rows) and all(rows.get(file.key) == file.lines for file in self.files if not file.destroyed) and not agent.flying

    def verdict(self) -> None:
        seen: list[tuple[str, int]] = []
        for place, log in self.broker.logs.items():
            if log.stable < len(log.records):
                raise BrokenPromiseError(f"{place} has an open transaction for ever")
            if place.topic != OFFSETS_TOPIC:
                seen += log.visible()
            elif not self.is_emptied:
                self.check_topic(log)
        is_anybody_left = any(agent.refused is None for agent in self.agents)
        for file in self.files:
            lines = [n for key, n in seen if key == file.key]
            first = list(dict.fromkeys(lines))
            is_missing = is_anybody_left and not file.destroyed and len(first) != file.lines
            if is_missing or first != list(range(len(first))):
                raise BrokenPromiseError(f"{file.key} has {file.lines} lines, seen: {lines}")
            if len(lines) > len(first) and not self.repeats:
                raise BrokenPromiseError(f"{file.key} has {file.lines} lines, and some are seen more than once: {lines}")
        if is_anybody_left and not self.is_emptied:
            self.check_complete()

    def check_topic(self, log: Log) -> None:
        """Heads go forwards by ones, unless an opening was not shown all and was to be done again. Positions never go back."""
        heads: dict[bytes, int] = {}
        positions: dict[bytes, int] = {}
        for record in log.records:
            if record.state not in ("committed", "compacted"):
                continue
            entry: Entry = record.value
            told = json.loads(entry.value) if entry.value else None
            if told is None:
                positions.pop(entry.key, None)
            elif "id" in told or "name" in told:
                continue
            elif "offset" not in told:
                if not self.history.cut_off and told["seq"] != heads.get(entry.key, 0) + 1:
                    raise BrokenPromiseError(f"head {entry.key!r} goes from {heads.get(entry.key)} to {told['seq']}")
                heads[entry.key] = told["seq"]
            else:
                if told["offset"]["position"] < positions.get(entry.key, 0) and not self.repeats:
                    raise BrokenPromiseError(f"{entry.key!r} goes from {positions[entry.key]} back to {told['offset']['position']}")
                positions[entry.key] = told["offset"]["position"]

    def in_topic(self, key: str) -> entries.FoundEntries:
        """What the topic says of a key."""
        log = self.broker.log(place_of(key))
        there = [one.value._replace(offset=n) for n, one in enumerate(log.records) if one.state == "committed"]
        return entries.read(there, UUID, key)

    def check_complete(self) -> None:
        """SQLite is never ahead; were it lost now, the topic says all that it said."""
        agent = next(one for one in self.agents if one.refused is None)
        found, named = self.in_topic(agent.key), self.in_topic(agent.connector)
        if (found.name, named.id) != (agent.connector, agent.key) or named.positions:
            raise BrokenPromiseError(f"{agent.key} is called {found.name}, and {agent.connector} is for {named.id}, {named.positions}")
        kept = agent.disk.of(agent.connector)
        for number, head in kept.heads.items():
            if found.heads.get(number, Head()).seq < head.seq:
                raise BrokenPromiseError(f"SQLite is ahead in lane {number}")
        told = {one.partition.key: one.offset.position for one in found.positions if isinstance(one.offset, SourceOffset)}
        for file in self.files:
            if not file.destroyed and told.get(file.key, 0) != file.lines:
                raise BrokenPromiseError(f"{file.key} is at {file.lines}, and the topic says {told.get(file.key)}")
