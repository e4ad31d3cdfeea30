"""Spark's Python daemon with two differences: it imports modules before it forks, and no worker outlives it.

Spark starts it as `python -m copycat_agent.spark.daemon pyspark.worker` and asks it for workers over a unix socket. Each worker is a fork,
which shares the modules imported here.
"""

# ruff: noqa: E402 - the collector pauses before the first large import

from __future__ import annotations

import gc

gc.disable()  # imported modules are never freed; collections would take a tenth of the time of the imports

import ctypes
import os
import signal
from collections.abc import Callable

import pyspark.daemon
import pyspark.worker

import copycat_agent.runner
import copycat_agent.sources.log_file.log_kind
from copycat_agent.spark import workers_lock

gc.freeze()  # later collections would touch, and so copy, every page shared with the workers
gc.enable()


PRELOADED = (pyspark.worker, copycat_agent.runner, copycat_agent.sources.log_file.log_kind)
"""Importing them must start no thread (a test checks it): a fork loses threads but keeps the locks they hold."""

_PR_SET_PDEATHSIG = 1


def bind_forks_to_parent() -> None:
    """Asks the kernel to kill every fork of this process, and their forks, as soon as its parent has died."""
    prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork
    parent = [os.getpid()]

    def before() -> None:
        parent[0] = os.getpid()

    def after_in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent[0]:  # the parent died before the call
            os._exit(1)

    os.register_at_fork(before=before, after_in_child=after_in_child)


def main() -> None:
    """Forks workers until Spark closes stdin."""
    bind_forks_to_parent()
    workers_lock.hold()
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
