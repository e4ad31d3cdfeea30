"""Options of source `journald`."""

from __future__ import annotations

from typing import Annotated, Literal

from copycat_agent.extending import ByteSize, Duration, Field, PolledOptions

_PRIORITY = r"([0-7]|emerg|alert|crit|err|warning|notice|info|debug)"

Match = Annotated[str, Field(pattern=r"^([A-Z_][A-Z0-9_]{0,63}=[^\x00]*|\+)$", max_length=4096)]
"""A match of journalctl: FIELD=value, or a plus."""
Unit = Annotated[str, Field(pattern=r"^[^\x00-\x20/-][^\x00-\x20/]*$", max_length=255)]


class JournaldOptions(PolledOptions):
    """Entries of systemd's journal, of this host or from a directory, as journalctl gives them."""

    type: Literal["journald"] = Field("journald", description="Entries of systemd's journal, as journalctl gives them.")
    units: tuple[Unit, ...] = Field(
        (), description="Entries of these units, and what systemd says of them; * and ? stand for any characters. Empty: of all."
    )
    priority: str | None = Field(
        None,
        pattern=rf"^{_PRIORITY}(\.\.{_PRIORITY})?$",
        description="Entries of this priority and more important ones, or from one to another: warning, or err..notice. Absent: all.",
    )
    match: tuple[Match, ...] = Field(
        (),
        description="Entries with these fields, as in _TRANSPORT=kernel. Of one field any of its values will do, of several fields "
        "each has to match; a + between them stands for or.",
    )
    boot: str = Field(
        "all",
        pattern=r"^(all|current|[0-9a-f]{32})$",
        description="Entries of all boots, of the current one of this host, or of the one with this ID.",
    )
    start_at: str = Field(
        "beginning",
        description="Where to begin when this connector first runs: beginning, end, or an RFC 3339 time: at the first entry that "
        "is not older.",
    )
    directory: str | None = Field(
        None, pattern=r"^/[^\x00]*$", description="Where journals lie that are not this host's own, such as /var/log/journal/remote."
    )
    namespace: str | None = Field(
        None, pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="The journal's namespace, as units name it in LogNamespace=."
    )
    max_bytes: ByteSize = Field(
        2**20,
        ge=2**10,
        le=2**27,
        description="A larger entry, with its fields' names, is a bad record. So much memory may be needed three times for each task.",
    )
    poll_interval: Duration = Field(0.5, ge=0.05, le=86400, description="Time between two looks whether the journal has changed.")
