"""A definition's Kafka options over the agent's."""

from __future__ import annotations

from copycat_agent.options import KafkaOptions, SecurityOptions


def under(defaults: KafkaOptions, own: KafkaOptions) -> KafkaOptions:
    """`own` with `defaults` where it says nothing: option by option, `security` and `client` key by key.

    An option that is given as null counts as said: `create_topics: null` turns the agent's off.
    """
    said = {name: getattr(own, name) for name in own.model_fields_set}
    if "client" in said:
        said["client"] = {**defaults.client, **own.client}
    if "security" in said:
        said["security"] = _security_under(defaults.security, own.security)
    merged = KafkaOptions(**{name: getattr(defaults, name) for name in KafkaOptions.model_fields} | said)
    merged.hide((own.hidden & own.model_fields_set) | (defaults.hidden - (own.model_fields_set - {"client"})))
    return merged


def _security_under(defaults: SecurityOptions, own: SecurityOptions) -> SecurityOptions:
    said = {name: getattr(own, name) for name in own.model_fields_set}
    merged = SecurityOptions(**{name: getattr(defaults, name) for name in SecurityOptions.model_fields} | said)
    merged.hide(own.hidden | (defaults.hidden - own.model_fields_set))
    return merged
