"""`python -m copycat_agent` and `copycat`: the commands, imported in a way that a signal can end without a traceback, and as documented."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from copycat_agent.cli import exits

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Install handlers, import the commands, which takes half a second and more under load, and run the one that is asked for."""
    if sys.argv[1:2] == ["health"]:
        from copycat_agent import probe  # noqa: PLC0415 - for this command alone

        code = probe.quick(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    before = signal.getsignal(signal.SIGINT)
    command, *options = sys.argv[1:] or [""]
    is_work = command in {"run", "backfill"}
    to_the_end = command == "backfill" or not {"--until-idle", "--dry-run"}.isdisjoint(options)
    if is_work:  # until `cli.running` takes over: a stop that is asked for before anything is started
        leave = _leave_with(exits.INTERRUPTED if to_the_end else exits.GOOD)
        signal.signal(signal.SIGTERM, leave)
        if before is not signal.SIG_IGN:  # whoever started us may want it ignored
            signal.signal(signal.SIGINT, leave)
    elif before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing to clean up yet
    if command == "run" and "--until-idle" not in options:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # an order to reload what is not loaded yet: nothing to do, and not to end
    from copycat_agent.cli.main import main as run  # noqa: PLC0415 - half a second, in which signals must find the above

    if not is_work:
        signal.signal(signal.SIGINT, before)
    run()


def _leave_with(code: int) -> Callable[[int, object], None]:
    """A handler that ends the process at once. Nothing is raised: an exception in the middle of an import may be swallowed there."""
    return lambda _number, _frame: os._exit(code)


if __name__ == "__main__":
    main()
