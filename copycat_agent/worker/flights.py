"""Batches under way, and what they made of each file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.delivery.base import Pending, Unsaved
from copycat_agent.model import Account, Batch, SourcePartition, SplitResult

if TYPE_CHECKING:
    from copycat_agent.worker.limits import Grant


class Flight(NamedTuple):
    """A batch under way."""

    batch: Batch
    results: Pending
    since: float
    grant: Grant


def _account(result: SplitResult) -> Account:
    """What one batch made of a file."""
    return Account(result.counts, result.delivered, result.split.path, undated=result.undated)


def accounts_of(unsaved: Iterable[Unsaved]) -> dict[SourcePartition, Account]:
    """What became of the files in these results."""
    accounts: dict[SourcePartition, Account] = {}
    for result in (result for one in unsaved for result in one.results):
        partition = result.split.partition
        accounts[partition] = accounts.get(partition, Account()) + _account(result)
    return accounts
