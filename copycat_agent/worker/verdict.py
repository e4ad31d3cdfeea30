"""What the results of a batch mean for their connector as a whole."""

from __future__ import annotations

from dataclasses import replace

from copycat_agent.errors import BlockedError, CopycatError, FileError, RetriableError
from copycat_agent.model import SplitResult

Results = tuple[SplitResult, ...]


def worst(results: Results) -> CopycatError | None:
    """The error that decides about the connector; a file's own trouble does not."""
    errors = [result.error for result in results if result.error is not None and not isinstance(result.error, FileError)]
    ranked = sorted(errors, key=lambda error: (isinstance(error, RetriableError), not isinstance(error, BlockedError)))
    return ranked[0] if ranked else None


def held_back(results: Results) -> BlockedError | None:
    """Why some files cannot be sent while others of the same connector may: their source tries them again, the connector goes on.

    None when nothing is blocked, or something else is wrong as well. For topics that depend on the record: a topic that all
    records share is the whole connector's business.
    """
    errors = [result.error for result in results if result.error is not None]
    blocked = [error for error in errors if isinstance(error, BlockedError)]
    own = all(isinstance(error, BlockedError | FileError) for error in errors)
    return blocked[0] if blocked and own else None


def for_source(results: Results, *, files_block_alone: bool) -> Results:
    """The results as their source should see them: a `BlockedError` that is not the file's own does not hold that file back."""
    if files_block_alone or not any(isinstance(result.error, BlockedError) for result in results):
        return results
    return tuple(replace(result, error=_plain(result.error)) for result in results)


def more_to_read(results: Results) -> bool:
    """Whether a file was not read to its end and can be read on at once."""
    return any(not result.at_end and not result.changed and result.error is None for result in results)


def _plain(error: CopycatError | None) -> CopycatError | None:
    return RetriableError(error.message, error.hint) if isinstance(error, BlockedError) else error
