"""What a connector's rounds carry from one step to the next: batches under way, and changes that are not saved yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.model import Account, Batch, SourcePartition, SplitResult
from copycat_agent.sources import Changes

if TYPE_CHECKING:
    from copycat_agent.executor import Results
    from copycat_agent.worker.limits import Grant


class Flight(NamedTuple):
    """A batch under way."""

    batch: Batch
    results: Results
    since: float
    grant: Grant


class Unsaved(NamedTuple):
    """Changes that are not in the store yet, and the batch they came from, if any."""

    changes: Changes
    results: tuple[SplitResult, ...] = ()
    task: int = 0
    seconds: float = 0.0


def _account(result: SplitResult) -> Account:
    """What one batch made of a file."""
    return Account(result.counts, result.delivered, result.split.path, undated=result.undated)


def entered(accounts: dict[SourcePartition, Account], changes: Changes) -> dict[str, Any]:
    """The store's argument: what tasks did, and what the source says of files; nothing when no accounts are kept."""
    both = {**accounts, **{one: accounts.get(one, Account()) + account for one, account in changes.accounts.items()}}
    return {"accounts": both} if both else {}


def is_empty(changes: Changes) -> bool:
    """Whether there is nothing to save."""
    return not (changes.offsets or changes.forget or changes.losses or changes.accounts)


def accounts_of(unsaved: Iterable[Unsaved]) -> dict[SourcePartition, Account]:
    """What became of the files in these results."""
    accounts: dict[SourcePartition, Account] = {}
    for result in (result for one in unsaved for result in one.results):
        partition = result.split.partition
        accounts[partition] = accounts.get(partition, Account()) + _account(result)
    return accounts
