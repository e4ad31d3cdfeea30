"""Files that wait on their own while the others of their connector go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.backoff import Backoff

if TYPE_CHECKING:
    from copycat_agent.errors import BlockedError
    from copycat_agent.logs import Log
    from copycat_agent.options import ErrorsOptions


class HeldFiles:
    """Why and since when a source holds single files back. When they are tried again is the source's business."""

    def __init__(self, options: ErrorsOptions, log: Log) -> None:
        self.reason = ""
        """Empty when no file is held back."""
        self._since = Backoff(options)
        self._log = log

    def add(self, error: BlockedError) -> None:
        """Files are held back for this reason. Raises FatalError when errors.retry_timeout is over."""
        self._since.failed(error)
        if str(error) != self.reason:
            self._log.warning("files are held back, the others go on", why=error.message, hint=error.hint)
        self.reason = str(error)

    def release(self) -> None:
        """None is held back any more."""
        self._since.succeeded()
        self.reason = ""
