"""`python -m copycat_agent` and `copycat`: imports the commands so that a signal ends them without a traceback, and as documented."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from copycat_agent.cli import exits


def main() -> None:
    """Installs handlers, imports the commands, which takes half a second and more under load, and runs the chosen one."""
    if sys.argv[1:2] == ["health"]:
        from copycat_agent import probe  # noqa: PLC0415 - for this command alone

        code = probe.quick(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    before = signal.getsignal(signal.SIGINT)
    command, *options = sys.argv[1:] or [""]
    is_work = command in {"run", "backfill"}
    to_the_end = command == "backfill" or not {"--until-idle", "--dry-run"}.isdisjoint(options)
    if is_work:  # until `cli.running` takes over: a stop that is requested before anything is started
        leave = _leave_with(exits.INTERRUPTED if to_the_end else exits.GOOD)
        signal.signal(signal.SIGTERM, leave)
        if before is not signal.SIG_IGN:  # the parent process may want it ignored
            signal.signal(signal.SIGINT, leave)
    elif before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing to clean up yet
    if command == "run" and "--until-idle" not in options:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # there is nothing to reload yet, and it must not end the process
    from copycat_agent.cli.main import main as run  # noqa: PLC0415 - half a second, in which signals must find the above

    if not is_work:
        signal.signal(signal.SIGINT, before)
    run()


def _leave_with(code: int) -> Callable[[int, object], None]:
    """Returns a handler that ends the process at once. It raises nothing: during an import an exception may be swallowed."""
    return lambda _number, _frame: os._exit(code)


if __name__ == "__main__":
    main()
