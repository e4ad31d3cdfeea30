"""The converter of a kind of schema, without the registry's client, which takes a quarter of a second to import, until it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.converters.base import Converter, Site
    from copycat_agent.converters.schemas.form import SchemaForm
    from copycat_agent.converters.schemas.schema_options import SchemaOptions


def build(options: SchemaOptions, site: Site, form: SchemaForm) -> Converter:
    """What `options` describe, at `site`. Raises ValueError without a registry."""
    from copycat_agent.converters.schemas import converting, registry_access  # noqa: PLC0415 - import the registry's client, 0.24 s

    if site.registry is None:
        msg = f"converter {options.type} needs converters.schema_registry"
        raise ValueError(msg)
    return converting.SchemaConverter(options, site, form, registry_access.registry_of(site.registry))
