"""What a definition and the agent file can say: frozen models, one field per option, without behaviour.

The door to pydantic. Each source, format, transform and converter derives its own options from `Options` in its own file;
`definitions` puts the pieces together, so the loader, the JSON Schema and `explain` all come from these models.
A field exists only when the option works. Every field has a description: it is the reference documentation.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr, StringConstraints, WithJsonSchema

__all__ = [
    "AgentOptions", "ByteSize", "ConverterOptions", "ConvertersOptions", "Definition", "DeliveryOptions", "DlqOptions",
    "Duration", "ErrorsOptions", "Field", "KafkaOptions", "LogOptions", "Options", "RecordOptions", "Secret",
    "SecurityOptions", "SourceOptions", "SparkOptions", "TopicOptions", "TransformOptions",
]

_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def _duration(value: object) -> object:
    """`"500ms"` -> 0.5 seconds. Floats pass: they come from defaults, the YAML loader hands every number over as text or int."""
    if isinstance(value, float):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value) if isinstance(value, str) else None
    if match is None:
        msg = "a duration needs a number and a unit, such as 500ms, 5s, 2m, 1h or 7d"
        raise ValueError(msg)
    return float(match[1]) * _DURATION_SECONDS[match[2]]


def _size(value: object) -> object:
    match = re.fullmatch(r"(\d+)(B|KiB|MiB|GiB|kB|KB|MB|GB)", value) if isinstance(value, str) else None
    if match is None:
        msg = "a size needs a whole number and a unit, such as 64KiB, 10MiB or 1GB"
        raise ValueError(msg)
    return int(match[1]) * _SIZE_BYTES[match[2]]


Duration = Annotated[
    float, BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h|d)$", "examples": ["500ms", "5s", "7d"]}),
]
"""Seconds, written with a unit."""

ByteSize = Annotated[
    int, BeforeValidator(_size),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(B|KiB|MiB|GiB|kB|KB|MB|GB)$", "examples": ["64KiB", "10MiB"]}),
]
"""Bytes, written with a unit."""

Secret = Annotated[SecretStr, PlainSerializer(lambda _: "********", return_type=str)]
"""A text that no repr, log or dump shows; `.get_secret_value()` at the one place that needs it."""


class Options(BaseModel):
    """Base of every section: frozen, compared by value, unknown keys are errors, nothing is coerced silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=False, hide_input_in_errors=True)


class SourceOptions(Options):
    """Base of a source's options. `type` is the name in `sources.SOURCES`; each source narrows it to its own literal."""

    type: str


class TransformOptions(Options):
    """Base of a transform's options."""


class ConverterOptions(Options):
    """Base of a converter's options. `type` is the name in `converters.CONVERTERS`."""

    type: str


class RecordOptions(Options):
    """How a record looks in Kafka. Texts are templates over the record, such as `"{@file.name}"`."""

    topic: str = Field(description="Topic name. With a template it needs a literal prefix or allowed_topics.", min_length=1)
    allowed_topics: tuple[str, ...] = Field((), description="The only topics a template may yield.")
    key: str | None = Field(None, description="Template of the record key; no key when absent.")
    headers: dict[str, str] = Field({}, description="Header names and their templates.")
    partition: Literal["key", "sticky", "file"] | int = Field(
        "key",
        description="key: by the key's murmur2 hash as Java clients do, without a key in sticky runs. sticky: ignores the key. "
        "file: one file, one partition. A number: that partition.",
    )
    timestamp: Literal["read", "file"] = Field(
        "read", description="read: when the record is sent. file: the file's modification time."
    )
    origin_headers: bool = Field(
        False, description="Adds copycat.file, copycat.offset and copycat.end, with which a consumer can drop repeats."
    )


class ConvertersOptions(Options):
    """How keys and values become bytes."""

    key: ConverterOptions | None = Field(None, description="Converter of keys.")
    value: ConverterOptions | None = Field(None, description="Converter of values.")


class DeliveryOptions(Options):
    """What is promised and how work is cut."""

    guarantee: Literal["at_least_once"] = Field("at_least_once", description="Nothing is lost; repeats only in the uncommitted window.")
    ordering: Literal["file"] = Field("file", description="Order within one file, and within a rotation chain.")
    tasks_max: int = Field(2, ge=1, le=64, description="Tasks of this connector that work side by side.")
    max_batch_bytes: ByteSize = Field(64 * 2**20, ge=64 * 2**10, description="A task reads at most this much per round.")
    max_batch_time: Duration = Field(5.0, gt=0, description="A task reads at most this long per round.")
    linger: Duration = Field(0.05, ge=0, le=60, description="Pause between rounds, so that a trickle is not one round per line.")


class DlqOptions(Options):
    """Where records go that cannot be delivered."""

    topic: str = Field(description="Dead-letter topic.", pattern=r"^[A-Za-z0-9._-]{1,249}$")
    include_raw: bool = Field(True, description="The raw bytes are the dead letter's value; false leaves it empty.")


class ErrorsOptions(Options):
    """What becomes of a record that cannot be made or sent."""

    tolerance: Literal["none", "all"] = Field(
        "none", description="none: a bad record stops the connector. all: it goes to the dead-letter topic, or is counted and passed."
    )
    dlq: DlqOptions | None = Field(None, description="The dead-letter topic.")
    retry_timeout: Literal["forever"] | Duration = Field("forever", description="How long retriable errors are retried before FAILED.")
    retry_max_delay: Duration = Field(5.0, gt=0, le=3600, description="Upper bound of the back-off between retries.")


class OauthOptions(Options):
    """OAuth 2 client credentials for SASL/OAUTHBEARER."""

    token_url: str = Field(description="Token endpoint.")
    client_id: str = Field(description="Client id.")
    client_secret: Secret = Field(description="Client secret.")
    scope: str | None = Field(None, description="Scope to ask for.")


class SecurityOptions(Options):
    """TLS and SASL towards the brokers."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field("PLAINTEXT", description="Security protocol.")
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(None, description="SASL mechanism.")
    username: str | None = Field(None, description="SASL user.")
    password: Secret | None = Field(None, description="SASL password.")
    ca_file: str | None = Field(None, description="CA certificates (PEM) that the brokers are checked against.")
    cert_file: str | None = Field(None, description="Client certificate (PEM).")
    key_file: str | None = Field(None, description="Client key (PEM).")
    key_password: Secret | None = Field(None, description="Password of the client key.")
    oauth: OauthOptions | None = Field(None, description="OAuth client credentials.")


class TopicOptions(Options):
    """How a missing topic is created."""

    partitions: int = Field(1, ge=1, description="Partitions.")
    replication_factor: int = Field(-1, ge=-1, description="Replicas; -1 is the broker's default.")
    config: dict[str, str] = Field({}, description="Topic configuration.")


class KafkaOptions(Options):
    """The Kafka cluster. In a definition it overrides what agent.yaml says, option by option."""

    bootstrap_servers: tuple[str, ...] = Field((), description="Broker addresses, HOST:PORT.")
    security: SecurityOptions = Field(SecurityOptions(), description="TLS and SASL.")
    client: dict[str, str] = Field({}, description="Further librdkafka settings by their names.")
    create_topics: TopicOptions | None = Field(None, description="Create missing topics this way; off when absent.")


class Definition(Options):
    """One connector: one YAML file. Compared by value to see whether it changed."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] = Field(description="Name, the key of its offsets.")
    enabled: bool = Field(True, description="false keeps the definition but does not run it.")
    source: SourceOptions = Field(description="Where records come from.")
    transforms: tuple[TransformOptions, ...] = Field((), description="Steps, in order.")
    record: RecordOptions = Field(description="How a record looks in Kafka.")
    converters: ConvertersOptions = Field(ConvertersOptions(), description="How keys and values become bytes.")
    delivery: DeliveryOptions = Field(DeliveryOptions(), description="What is promised and how work is cut.")
    errors: ErrorsOptions = Field(ErrorsOptions(), description="What becomes of a record that cannot be made or sent.")
    kafka: KafkaOptions = Field(KafkaOptions(), description="Overrides of the agent's Kafka section.")


class SparkOptions(Options):
    """The local Spark session."""

    master: str = Field("local", description="local: one core per runner. Or local[N].")
    driver_memory: ByteSize = Field(512 * 2**20, ge=450 * 2**20, description="Heap of the JVM.")
    conf: dict[str, str] = Field({}, description="Further Spark settings.")


class LogOptions(Options):
    """The agent's own log."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is written.")
    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, else JSON.")


class AgentOptions(Options):
    """agent.yaml: what holds for all connectors. Everything has a default."""

    kafka: KafkaOptions = Field(KafkaOptions(), description="Defaults for all connectors.")
    state_dir: str | None = Field(None, description="Directory of offsets and lock; default $STATE_DIRECTORY, else ~/.local/state/copycat.")
    spark: SparkOptions = Field(SparkOptions(), description="The local Spark session.")
    log: LogOptions = Field(LogOptions(), description="The agent's own log.")
