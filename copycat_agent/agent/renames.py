"""`renamed_from`: who takes over whose offsets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from copycat_agent.options import Definition


@dataclass(frozen=True, slots=True)
class Renames:
    """`taken`: by new name the old names whose offsets it takes over. `refused`: by new name why it may not run as it stands.

    `in_use`: pairs of a new and an old name that another definition still has, so that its offsets stay with it. `earlier`: by new name
    all old names that nobody else has or claims, whether or not anything is saved for them: Kafka may know more than a store that was lost.
    """

    taken: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    in_use: list[tuple[str, str]] = field(default_factory=list)
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)


def find(definitions: Mapping[str, Definition], saved: Collection[str], there: Collection[str]) -> Renames:
    """Decide for all definitions at once; `saved` are the names that have offsets, or lanes, `there` those that files define.

    That is more than `definitions` where a file is broken or was not asked for: its offsets stay with it all the same.

    Offsets that two definitions claim go to neither of them, and neither runs on: like two files with one name, it is not for
    us to guess, and to start from the beginning would send everything again. A claim on a name without either (they have been
    taken over) is no claim, so that `renamed_from` may stay in a definition for ever.
    """
    found = Renames()
    claims = {name: [old for old in one.renamed_from if old in saved and old != name] for name, one in definitions.items()}
    for name, olds in claims.items():
        found.in_use.extend((name, old) for old in olds if old in there)
    free = {name: [old for old in olds if old not in there] for name, olds in claims.items()}
    claimants = Counter(old for olds in free.values() for old in olds)
    for name, olds in free.items():
        twice = [old for old in olds if claimants[old] > 1]
        if twice:
            others = ", ".join(other for other, theirs in free.items() if twice[0] in theirs and other != name)
            found.refused[name] = f"renamed_from: the offsets of {twice[0]} are claimed by {others} too; leave it in one of them"
        elif olds:
            found.taken[name] = tuple(olds)
    named = Counter(old for one in definitions.values() for old in dict.fromkeys(one.renamed_from))
    for name, one in definitions.items():
        found.earlier[name] = tuple(old for old in dict.fromkeys(one.renamed_from) if old not in there and named[old] == 1)
    return found
