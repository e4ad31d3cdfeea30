"""What differs between two sets of options, by dotted names: values are not shown, they may be secrets."""

from __future__ import annotations

from copycat_agent.options import Options


def differences(before: Options, after: Options, at: str = "") -> tuple[str, ...]:
    """Dotted options that differ, in the order of their sections: `("record.topic", "kafka.client.linger.ms")`.

    An option of another kind, or a list, is named as a whole. A value that is the same but has become a secret, or none any
    more, counts: it is shown differently.
    """
    if type(before) is not type(after):
        return (at.rstrip("."),)
    found: list[str] = []
    for name, field in type(before).model_fields.items():
        key = f"{at}{field.alias or name}"
        one, other = getattr(before, name), getattr(after, name)
        if isinstance(one, Options) and isinstance(other, Options):
            found += differences(one, other, f"{key}.")
        elif isinstance(one, dict) and isinstance(other, dict):
            found += [f"{key}.{inner}" for inner in {**one, **other} if one.get(inner) != other.get(inner)]
        elif one != other:
            found.append(key)
    found += [f"{at}{name}" for name in sorted(before.hidden ^ after.hidden) if f"{at}{name}" not in found]
    return tuple(found)
