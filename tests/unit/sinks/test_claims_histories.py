"""Each offset is visible once, whoever stops, dies, wakes or is answered late.

Each rule that is taken out makes some history break that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.sinks.chain_objects import CHECKPOINT, ChainObjects, ClaimNames
from copycat_agent.sinks.claims import Claims
from tests.unit.sinks import histories

HISTORIES, LONG, NOTICED = 300, 60_000, 2000
"""How many are tried; with `-m long`; and at most until a rule that is taken out is missed."""
SHOWING = (0, 1, 2, 43, 57, 335, 482, 725, 893)
"""Histories that have shown what few others show: they are tried before the others."""

Plant = Callable[[], AbstractContextManager[Any]]

pytestmark = pytest.mark.timeout(300)
"""Nothing waits here: it is the processor's time, of which a busy machine gives little."""


def run_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        trace: list[str] = []
        try:
            histories.run(seed, trace.append)
        except AssertionError as error:
            end = "\n".join(trace[-60:])
            pytest.fail(f"python -m tests.unit.sinks.histories --seed {seed}: {error}\nit ends with\n{end}")


def test_each_offset_is_visible_once() -> None:
    run_all({*range(HISTORIES), *SHOWING})


@pytest.mark.long
def test_each_offset_is_visible_once_in_many_histories() -> None:
    run_all(range(HISTORIES, HISTORIES + LONG))


def _changed(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def _always(owner: Any, name: str, value: Any) -> Plant:
    return _changed(owner, name, lambda _: lambda *_: value)


def _only_for_others(original: Any) -> Any:
    """Who has put a claim himself does not look for a checkpoint."""

    def put(self: Any, claim: Any) -> Any:
        self.is_void = lambda _: False
        return original(self, claim)

    return put


def _looks_before(original: Any) -> Any:
    """The checkpoint is looked at before the claim is put."""

    def put(self: Any, claim: Any) -> Any:
        is_void = self.is_void(claim.first)
        self.is_void = lambda _: is_void
        return original(self, claim)

    return put


def _publishes_what_is_there(original: Any) -> Any:
    """Who comes second publishes the claim that is there, without looking for a checkpoint."""

    def put(self: Any, claim: Any) -> Any:
        there = original(self, claim)
        if there is not None:
            self.publish(there)
        return there

    return put


def _takes_no_for_a_no(original: Any) -> Any:
    """A claim that is there is another's."""

    def put(self: Any, claim: Any) -> Any:
        there = original(self, claim)
        return there if there is claim or there is None else replace(there, token="another's")

    return put


def _takes_a_no_for_a_claim(original: Any) -> Any:
    """A put that was refused has somebody else's claim in its place, though none is seen."""
    return lambda self, claim: original(self, claim) or replace(claim, token="another's")


def _cleans_up_after_errors(original: Any) -> Any:
    """Files are deleted whose claim failed."""

    def put(self: Any, key: str, data: bytes) -> Any:
        try:
            return original(self, key, data)
        except RetriableError:
            if "/claims/" in key and CHECKPOINT not in key:
                self.delete(list(self._world.objects.keys() & _pending(key, data)))
            raise

    return put


def _pending(key: str, data: bytes) -> set[str]:
    claim = json.loads(data)
    return {f"{key.replace('/claims/', '/pending/')}-{claim['token']}/{n}" for n in range(len(claim["files"]))}


def _one_checkpoint(original: Any) -> Any:
    """There is one, which is written over."""

    def put(self: Any, key: str, data: bytes) -> Any:
        if CHECKPOINT not in key:
            return original(self, key, data)

        def do() -> None:
            for one in [one for one in self._world.objects if CHECKPOINT in one]:
                del self._world.objects[one]
            self._world.objects[key] = data

        return self._do(f"put {key}", do)

    return put


def _prunes_first(original: Any) -> Any:
    """Claims are deleted before the checkpoint says so."""

    def prune(self: Any, checkpoint: int) -> None:
        self.store.delete([self.claim_key(one) for one in self.listed().firsts if one < checkpoint])
        original(self, checkpoint)

    return prune


def _prunes_without_a_checkpoint(original: Any) -> Any:
    """Claims are deleted, and nothing says so."""

    def prune(self: Any, checkpoint: int) -> None:
        self.store.delete([self.claim_key(one) for one in self.listed().firsts if one < checkpoint])

    return prune


def _prunes_at_once(original: Any) -> Any:
    """A checkpoint that was put is there."""

    def prune(self: Any, checkpoint: int) -> None:
        listed = self.listed
        self.listed = lambda: ClaimNames((found := listed()).firsts, [*found.checkpoints, checkpoint])
        original(self, checkpoint)

    return prune


def _prunes_all(original: Any) -> Any:
    """No claim stays."""
    return lambda self, _: original(self, 1 + max(self.listed().firsts))


def _sweeps_too_much(original: Any) -> Any:
    """What is pending for the end of the chain is deleted, too."""

    def finish(self: Any, claim: Any) -> None:
        original(self, claim)
        self.store.delete([key for key, first in self.pending() if first >= claim.end])

    return finish


def _claims_first(original: Any) -> Any:
    """The claim is there before its files are."""

    def upload(self: Any, claim: Any, files: Any) -> None:
        put = self.put

        def put_first(claim: Any) -> Any:
            there = put(claim)
            original(self, claim, files)
            return there

        self.put = put_first

    return upload


def _publishes_first(original: Any) -> Any:
    """Files are visible before they are claimed."""

    def upload(self: Any, claim: Any, files: Any) -> None:
        original(self, claim, files)
        self.publish(claim)

    return upload


def _puts(original: Any) -> Any:
    """A put writes over what is there."""

    def put(self: Any, key: str, data: bytes) -> Any:
        if "/claims/" not in key or CHECKPOINT in key:
            return original(self, key, data)

        def do() -> bool:
            self._world.objects[key] = data
            return True

        return self._do(f"put {key}", do)

    return put


def _own_start(original: Any) -> Any:
    """Each writer's chain begins where it says."""
    return lambda self, chain, start, known: original(self, chain, start, known)._replace(offset=start)


def _deletes_first(original: Any) -> Any:
    """What is pending goes before it is copied."""

    def publish(self: Any, moves: Any) -> None:
        data = {key: self._do(f"read {key}", lambda key=key: self._world.objects.get(key)) for key in moves}
        self.delete([key for key in moves if data[key] is not None])
        for key, final in moves.items():
            if data[key] is not None:
                self._do(f"copy to {final}", lambda key=key, final=final: self._world.put(final, data[key]))

    return publish


def _takes_any_last(original: Any) -> Any:
    """The greatest claim of a listing is published without a look for checkpoints."""

    def last(self: Any, chain: Any, begin: int) -> Any:
        chain.is_void = lambda _: False
        return original(self, chain, begin)

    return last


SMALLEST = property(lambda self: min(self.checkpoints, default=0))
VIEW = histories.View
CHAIN = ChainObjects
BUGS: dict[str, Plant] = {
    "no claim is void": _always(CHAIN, "is_void", value=False),
    "one's own claim is never void": _changed(CHAIN, "put", _only_for_others),
    "checkpoints are looked for before the claim is put": _changed(CHAIN, "put", _looks_before),
    "who comes second publishes what he finds": _changed(CHAIN, "put", _publishes_what_is_there),
    "who comes second takes the claim that is there for another's": _changed(CHAIN, "put", _takes_no_for_a_no),
    "a put that is refused proves that there is a claim": _changed(CHAIN, "put", _takes_a_no_for_a_claim),
    "files are deleted when nobody knows whether they are claimed": _changed(VIEW, "put_if_absent", _cleans_up_after_errors),
    "a checkpoint is written over": _changed(VIEW, "put_if_absent", _one_checkpoint),
    "the smallest checkpoint counts": lambda: patch.object(ClaimNames, "checkpoint", SMALLEST),
    "claims are deleted before their checkpoint is there": _changed(CHAIN, "prune", _prunes_first),
    "claims are deleted without a checkpoint": _changed(CHAIN, "prune", _prunes_without_a_checkpoint),
    "a checkpoint that was refused counts": _changed(CHAIN, "prune", _prunes_at_once),
    "the last claim is deleted, too": _changed(CHAIN, "prune", _prunes_all),
    "a claim counts as published": _always(CHAIN, "finish", value=None),
    "what is pending for the end of the chain is deleted": _changed(CHAIN, "finish", _sweeps_too_much),
    "a claim is put before its files are uploaded": _changed(CHAIN, "upload", _claims_first),
    "files are published before they are claimed": _changed(CHAIN, "upload", _publishes_first),
    "a claim is written over": _changed(VIEW, "put_if_absent", _puts),
    "each writer has a start of his own": _changed(Claims, "_begin", _own_start),
    "what is pending is deleted before it is published": _changed(VIEW, "publish", _deletes_first),
    "the last claim of a listing is published unseen": _changed(Claims, "_last", _takes_any_last),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_taken_out_is_missed(bug: str) -> None:
    with BUGS[bug]():
        for seed in (*SHOWING, *range(NOTICED)):
            try:
                histories.run(seed)
            except (AssertionError, RetriableError) as error:
                print(f"{bug}: history {seed}: {error}")
                return
    pytest.fail(f"{NOTICED} histories, and nobody noticed")
