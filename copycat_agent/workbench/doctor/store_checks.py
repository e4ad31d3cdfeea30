"""Checks the store of a files sink: whether it answers, and how many partitions are written there. Writes nothing."""

from __future__ import annotations

from copycat_agent.errors import CopycatError
from copycat_agent.sinks.claims import Claims
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.sink_stores import store_at
from copycat_agent.workbench.doctor.steps import Notes


def examine_store(notes: Notes, connector: str, sink: FilesSinkOptions) -> None:
    """Adds step `store`."""
    try:
        store = store_at(sink.uri)
        written = Claims(store, connector).partitions()
    except CopycatError as error:
        notes.fail("store", error.message, error.hint)
        return
    state = f"{len(written):,} partitions are written there" if written else "nothing is written there yet"
    notes.ok("store", f"{store.shown()}: {state}")
