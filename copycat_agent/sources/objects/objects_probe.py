"""The checks of `copycat doctor` for source `objects`: whether its store can be listed, and an object be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

from copycat_agent.extending import FatalError, Probed, RunsAs, parse_address
from copycat_agent.sources.objects.listing_schedule import NameRange
from copycat_agent.sources.objects.objects_source import ObjectsSource, store_at
from copycat_agent.sources.objects.options import ObjectsOptions

_MOST = 1000
"""Most names to list."""


def probe_objects(options: ObjectsOptions, user: RunsAs) -> Iterator[Probed]:
    """Lists one page of names and reads the first byte of one object, with the credentials of this shell.

    Permissions for cleanup are not checked: only a cleanup could show them.
    """
    del user
    address = parse_address(options.uri)
    try:
        store = store_at(address)
        found = list(itertools.islice(store.listed(NameRange()), _MOST))
    except FatalError as error:
        yield Probed("store", error.message, "fail", error.hint)
        return
    except OSError as error:
        yield Probed("list", f"{address.shown} cannot be listed: {error.strerror}", "fail", ObjectsSource.failure(address, error).hint)
        return
    is_wanted = ObjectsSource(options).is_wanted
    wanted = [one for one in found if is_wanted(one.name)]
    more = "or more " if len(found) == _MOST else ""
    yield Probed(
        "list", f"{address.shown} has {len(found):,} {more}objects; source.pattern and exclude leave {len(wanted):,} of them to be read"
    )
    if first := next((one for one in wanted if one.size), None):
        try:
            with closing(store.open(first)) as file:
                file.read_at(0, 1)
        except OSError as error:
            words = f"{store.shown(first.name)} cannot be read: {error.strerror}"
            yield Probed("read", words, "fail", "give these credentials the right to read objects (s3:GetObject)")
            return
        yield Probed("read", f"{store.shown(first.name)} can be read")
