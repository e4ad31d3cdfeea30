"""The checks of `copycat doctor` for a source `journald`: whether there are journals, and whether the agent's user may read them."""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.extending import CopycatError, Probed, RunsAs
from copycat_agent.sources.journald.cursors import written_at
from copycat_agent.sources.journald.export_format import CURSOR, LargeEntry
from copycat_agent.sources.journald.journalctl import Journalctl, journal_directories, journal_files
from copycat_agent.sources.journald.journald_options import JournaldOptions

_SHOWN = 3


def probe_journal(options: JournaldOptions, user: RunsAs) -> Iterator[Probed]:
    """Checks journalctl, the journals' permissions, and the newest entry."""
    journalctl = Journalctl(options)
    try:
        yield Probed("journalctl", journalctl.version())
        yield from _of_files(options, user)
        with journalctl.run("--lines=1", filtered=False) as run:
            cursors = [entry.cursor if isinstance(entry, LargeEntry) else str(entry[CURSOR]) for entry in run.entries]
            run.check()
            yield from (Probed("damage", f"journalctl says: {one}", "warn", "journalctl --verify tells more") for one in run.damage)
    except CopycatError as error:
        yield Probed("journalctl", error.message, "fail", error.hint)
        return
    if cursors:
        yield Probed("entries", f"the newest was written at {written_at(cursors[0])}")
    else:
        yield Probed("entries", "the journal is empty", "warn", "journalctl --header shows what it is")


def _of_files(options: JournaldOptions, user: RunsAs) -> Iterator[Probed]:
    where = options.directory or "/var/log/journal and /run/log/journal"
    files = sorted(journal_files(options))
    fix = f"usermod --append --groups systemd-journal {user.name}, then start the agent again"
    if options.directory is not None and (closed := user.closed_parent(options.directory)):
        yield Probed("journals", f"{user.name} may not pass through {closed}", "fail", fix)
        return
    if closed := next((str(one) for one in journal_directories(options) if one.exists() and not user.may(str(one), "rx")), ""):
        yield Probed("journals", f"{user.name} may not list {closed}", "fail", fix)
        return
    if not files:
        yield Probed(
            "journals", f"there are none in {where}", "fail", "is systemd-journald running? Storage= in journald.conf says where it writes"
        )
        return
    shut = [one for one in files if not user.may(one, "r")]
    if not shut:
        yield Probed("journals", f"{user.name} may read all {len(files)} files in {where}")
        return
    named = ", ".join(shut[:_SHOWN]) + (f" and {len(shut) - _SHOWN} more" if len(shut) > _SHOWN else "")
    yield Probed("journals", f"{user.name} may not read {named}", "fail" if len(shut) == len(files) else "warn", fix)
