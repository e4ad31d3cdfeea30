"""`python -m copycat_agent` and `copycat`: the commands, imported in a way that Ctrl-C can end without a traceback."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Import the commands, which takes half a second, and run the one that is asked for."""
    if sys.argv[1:2] == ["health"]:
        from copycat_agent import probe  # noqa: PLC0415 - for this command alone

        code = probe.quick(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # whoever started us may want it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing to clean up yet
    if sys.argv[1:2] == ["run"] and "--until-idle" not in sys.argv:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # an order to reload what is not loaded yet: nothing to do, and not to end
    from copycat_agent.cli.main import main as run  # noqa: PLC0415 - half a second, in which Ctrl-C must find the above

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
