"""The views of sources, transforms and converters as plugins of Kafka Connect.

A source's class is its type (`log_file`). Those of transforms and converters begin with their section, because a name may be in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from copycat_agent import __version__
from copycat_agent.api.connect.calls import Call, Reply, WorkerView, not_found
from copycat_agent.api.connect.config_keys import ConfigKey, connector_keys, part_keys
from copycat_agent.converters import CONVERTERS
from copycat_agent.registry import Registry, UnusablePart
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS


class _Kind(NamedTuple):
    type: str
    prefix: str
    registry: Registry[Any]


_KINDS = (
    _Kind("source", "", SOURCES),
    _Kind("converter", "converters.", CONVERTERS),
    _Kind("transformation", "transforms.", TRANSFORMS),
)


def plugins(_view: WorkerView, call: Call) -> Reply:
    """Returns the plugins: only sources, unless `connectorsOnly` is false."""
    kinds = _KINDS[:1] if call.flag("connectorsOnly", default=True) else _KINDS
    return Reply([{"class": name, "type": kind.type, "version": version} for kind in kinds for name, version in _named(kind)])


def plugin_config(_view: WorkerView, call: Call) -> Reply:
    """Returns the keys of one plugin."""
    found = keys_of(call.named["plugin"])
    if found is None:
        raise not_found(f"Unknown plugin {call.named['plugin']}.")
    return Reply([key.document(order) for order, key in enumerate(found, 1)])


def keys_of(plugin: str) -> tuple[ConfigKey, ...] | None:
    """Returns the keys of a plugin; None for an unknown one, and for one of a package that cannot be used."""
    for kind in reversed(_KINDS):
        if not plugin.startswith(kind.prefix):
            continue
        entry = kind.registry.find(plugin.removeprefix(kind.prefix))
        if entry is not None and not isinstance(entry, UnusablePart):
            return connector_keys(entry.options, plugin) if kind.type == "source" else part_keys(entry.options)
    return None


def version_of(registry: Registry[Any], name: str) -> str:
    """Returns the version of the package that provides a part; the agent's for its own parts."""
    origin = registry.origin(name)
    return origin.version if origin else __version__


def _named(kind: _Kind) -> Iterator[tuple[str, str]]:
    """Yields class and version of each usable plugin of this kind."""
    for name in sorted(kind.registry):
        yield kind.prefix + name, version_of(kind.registry, name)
