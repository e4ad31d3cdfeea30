"""What a definition and the agent file can say: frozen models, one field per option, without behaviour.

The door to pydantic. Each source, format, transform and converter derives its own options from `Options` in its own file;
`definitions` puts the pieces together, so the loader, the JSON Schema and `explain` all come from these models.
A field exists only when the option works. Every field has a description: it is the reference documentation.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    SecretStr,
    SerializeAsAny,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo

from copycat_agent.masks import HIDDEN, Mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "FROM_YAML",
    "HIDDEN",
    "AgentOptions",
    "ApiOptions",
    "AssertionOptions",
    "BasicAuthOptions",
    "BeforeValidator",
    "ByteSize",
    "CaseFileOptions",
    "CaseOptions",
    "ConnectorName",
    "ConverterOptions",
    "ConvertersOptions",
    "Definition",
    "DeliveryOptions",
    "DlqOptions",
    "Duration",
    "ErrorsOptions",
    "ExpectedLetterOptions",
    "ExpectedOptions",
    "Field",
    "FieldInfo",
    "KafkaOptions",
    "LimitsOptions",
    "LogOptions",
    "OauthOptions",
    "Options",
    "Patterns",
    "PlainSerializer",
    "PrivateAttr",
    "RecordOptions",
    "Regex",
    "RegistryOauthOptions",
    "ScalarText",
    "SchemaRegistryOptions",
    "Secret",
    "SecretStr",
    "SecurityOptions",
    "SerializeAsAny",
    "SourceOptions",
    "SparkOptions",
    "TokenOptions",
    "TopicOptions",
    "TransformOptions",
    "TypeAdapter",
    "ValidationError",
    "WithJsonSchema",
    "WrittenFloat",
    "epoch_ms",
    "format_duration",
    "format_size",
]

FROM_YAML = "from yaml"
"""Validation context of the loader: numbers without a unit are refused for durations and sizes."""

_LOGIN = re.compile(r"//[^\s:/]*:.*@")
_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def _duration(value: object, info: ValidationInfo) -> object:
    """`"500ms"` -> 0.5 seconds. A bare number is seconds in code (defaults, tests) and an error in YAML."""
    if info.context != FROM_YAML and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return seconds_of(value if isinstance(value, str) else "")


def _size(value: object, info: ValidationInfo) -> object:
    """`"64KiB"` -> 65536 bytes. A bare number is bytes in code (defaults, tests) and an error in YAML."""
    if info.context != FROM_YAML and isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"(\d{1,15})(B|KiB|MiB|GiB|kB|KB|MB|GB)", value, re.ASCII) if isinstance(value, str) else None
    if match is None:
        msg = "a size needs a whole number and a unit, such as 64KiB, 10MiB or 1GB"
        raise ValueError(msg)
    return int(match[1]) * _SIZE_BYTES[match[2]]


def _memory(value: object, info: ValidationInfo) -> object:
    """A size, or one in Spark's and Java's own spelling: `"512m"`, `"2g"`."""
    match = re.fullmatch(r"(\d{1,9})([mg])", value, re.ASCII) if isinstance(value, str) else None
    return _size(value if match is None else f"{match[1]}{match[2].upper()}iB", info)


def _regex(value: object) -> object:
    """A pattern that can be compiled."""
    if isinstance(value, str):
        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:
            msg = f"not a regular expression: {error}"
            raise ValueError(msg) from None
    return value


def seconds_of(text: str) -> float:
    """`"10m"` -> 600.0, as a definition writes it. ValueError for any other text."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)", text, re.ASCII)
    if match is None:
        msg = "a duration needs a number and a unit, such as 500ms, 5s, 2m, 1h or 7d"
        raise ValueError(msg)
    return float(match[1]) * _DURATION_SECONDS[match[2]]


def format_duration(seconds: float) -> str:
    """Seconds as a definition writes them, in the largest unit that leaves a whole number: 0.05 -> `50ms`, 5.0 -> `5s`."""
    milliseconds = round(seconds * 1000)
    for unit in ("d", "h", "m", "s"):
        per_unit = round(_DURATION_SECONDS[unit] * 1000)
        if milliseconds >= per_unit and milliseconds % per_unit == 0:
            return f"{milliseconds // per_unit}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def format_size(size_bytes: int) -> str:
    """Bytes as a definition writes them, in the largest binary unit that leaves a whole number: 65536 -> `64KiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes >= _SIZE_BYTES[unit] and size_bytes % _SIZE_BYTES[unit] == 0:
            return f"{size_bytes // _SIZE_BYTES[unit]}{unit}"
    return f"{size_bytes}B"


class WrittenFloat(float):
    """A decimal number from YAML that remembers how it was written (`text`): `1.10` stays `1.10` where text is wanted.

    Equal to, and pickled as, the plain float.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Raise ValueError when `text` is not a number."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        """Pickle as the plain float: beyond the loader nobody asks how it was written."""
        return float, (float(self),)


def _as_written(value: object) -> object:
    """A number or boolean in a map of texts becomes the text that stood in the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, WrittenFloat):
        return value.text
    return str(value) if isinstance(value, int | float) else value


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h|d)$", "examples": ["500ms", "5s", "7d"]}),
]
"""Seconds, written with a unit."""

ByteSize = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(format_size, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(B|KiB|MiB|GiB|kB|KB|MB|GB)$", "examples": ["64KiB", "10MiB"]}),
]
"""Bytes, written with a unit."""

JvmMemory = Annotated[
    int,
    BeforeValidator(_memory),
    PlainSerializer(format_size, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(m|g|MiB|GiB|MB|GB)$", "examples": ["512m", "1GiB"]}),
]
"""Bytes of a JVM's heap, written with a unit, Spark's own included."""

Regex = Annotated[str, BeforeValidator(_regex)]
"""A regular expression in Python's spelling."""

Secret = Annotated[SecretStr, PlainSerializer(lambda _: HIDDEN, return_type=str)]
"""A text that no repr, log or dump shows; `.get_secret_value()` at the one place that needs it."""

ScalarText = Annotated[str, BeforeValidator(_as_written), WithJsonSchema({"type": ["string", "number", "boolean"]})]
"""Text for which a number or boolean is accepted too, taken as it is written."""

Patterns = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""One pattern, or a list of them."""


class Options(BaseModel):
    """Base of every section: frozen, compared by value, unknown keys are errors, nothing is coerced silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=False, hide_input_in_errors=True)

    _hidden: frozenset[str] = PrivateAttr(frozenset())

    @property
    def hidden(self) -> frozenset[str]:
        """Names of the fields whose values came from `${file:}` or `${cred:}`: secrets, though the field as such is none."""
        return self._hidden

    def hide(self, names: Iterable[str]) -> None:
        """Mask these fields in every repr and in `masked`. For the loader, before anyone else has seen the value."""
        self._hidden = self._hidden | frozenset(names)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What repr and str show: hidden fields masked."""
        return ((name, HIDDEN if name in self._hidden else value) for name, value in super().__repr_args__())

    def masked(self) -> dict[str, Any]:
        """All options as plain JSON values in the units of a definition, with every secret as `HIDDEN`: fit to be shown."""
        return {name: HIDDEN if name in self._hidden else _masked(value, name, self) for name, value in self}


def without_login(text: str) -> str:
    """`text` with user and password of an address hidden, up to the last @ of the line: the password may hold anything."""
    return _LOGIN.sub(f"//{HIDDEN}@", text)


def _masked(value: object, name: str, owner: Options) -> object:
    if isinstance(value, Options):
        return value.masked()
    if isinstance(value, tuple) and value and isinstance(value[0], Options):
        return [_masked(item, name, owner) for item in value]
    shown = owner.model_dump(mode="json", include={name})[name]
    return without_login(shown) if isinstance(shown, str) else shown


class SourceOptions(Options):
    """Base of a source's options. `type` is the name in `sources.SOURCES`; each source narrows it to its own literal."""

    type: str = Field(description="Kind of source.")


class TransformOptions(Options):
    """Base of a transform's options, which describe one whole item of `transforms`.

    The action is a field of its own: `- drop_if: {path: /healthz}` is validated by a class with a field `drop_if`, the name
    in `transforms.TRANSFORMS`. So an action may be a text, a number or a map, and what every item may carry (`if`,
    `on_error`) is a field beside it. YAML sequences arrive as tuples, numbers and booleans as themselves.
    """


class ConverterOptions(Options):
    """Base of a converter's options. `type` is the name in `converters.CONVERTERS`."""

    type: str = Field(description="Kind of converter.")


class RecordOptions(Options):
    """How a record looks in Kafka. Texts are templates over the record, such as `"{@file.name}"`."""

    topic: str = Field(description="Topic name. With a template it needs a literal prefix or allowed_topics.", min_length=1)
    allowed_topics: tuple[str, ...] = Field((), description="The only topics a template may yield.")
    key: str | None = Field(None, description="Template of the record key; no key when absent.")
    value: str | None = Field(
        None,
        min_length=1,
        description="Template of the value. One that is exactly one field, such as {payload}, takes that field as it is, an object or a "
        "number too; null is a bad record. Default: all fields, or the raw bytes while no transform has made fields.",
    )
    headers: dict[str, ScalarText] = Field({}, description="Header names and their templates.")
    partition: Literal["key", "sticky", "file"] | int = Field(
        "key",
        description="key: by the key's murmur2 hash as Java clients do, without a key in sticky runs. sticky: ignores the key. "
        "file: one file, one partition. A number: that partition.",
    )
    timestamp: Literal["read", "event", "file", "broker"] = Field(
        "read",
        description="read: when the record is sent. event: what a transform has set, such as timestamp, cri or syslog; as read where none "
        "has. file: the file's modification time. broker: when the broker takes it; the topic needs message.timestamp.type=LogAppendTime.",
    )
    origin_headers: bool = Field(
        False, description="Adds copycat.file, copycat.offset and copycat.end, with which a consumer can drop repeats."
    )


class BasicAuthOptions(Options):
    """User and password for HTTP."""

    username: str = Field(description="User.")
    password: Secret = Field(description="Password.")


class AssertionOptions(Options):
    """A signed statement of who asks for a token, in place of a secret (RFC 7523): one from a file, or one that the agent signs."""

    file: str | None = Field(
        None, description="File that holds one, read anew for each token, such as a projected service account token of Kubernetes."
    )
    key_file: str | None = Field(None, description="Private key (PEM) with which the agent signs one.")
    key_password: Secret | None = Field(None, description="Password of the private key.")
    algorithm: Literal["RS256", "ES256"] = Field("RS256", description="How it is signed.")
    issuer: str | None = Field(None, description="Claim iss, often the client id.")
    subject: str | None = Field(None, description="Claim sub.")
    audience: str | None = Field(None, description="Claim aud. Default: the token endpoint.")
    lifetime: Duration = Field(300.0, ge=10, le=86400, description="How long one is good.")


class TokenOptions(Options):
    """Where an access token comes from."""

    method: str = Field("oidc", description="How it is got.")
    token_url: str | None = Field(
        None, description="Token endpoint, https:// or http://. Needed except for azure_imds, which has a default."
    )
    client_id: str | None = Field(None, description="Client id; with azure_imds that of a user-assigned identity.")
    client_secret: Secret | None = Field(None, description="Client secret.")
    scope: str | None = Field(None, description="Scope to ask for.")
    assertion: AssertionOptions | None = Field(None, description="With jwt_bearer: what stands in place of a secret.")
    resource: str | None = Field(None, min_length=1, description="With azure_imds: what the token is for, its App ID URI.")
    ca_file: str | None = Field(
        None, description="CA certificates (PEM) that the token endpoint is checked against. Default: the system's."
    )


class RegistryOauthOptions(TokenOptions):
    """OAuth 2 for a schema registry. A process asks for one token, and uses it until it is about to expire."""

    method: Literal["oidc", "jwt_bearer", "azure_imds"] = Field("oidc", description="As of kafka.security.oauth.")
    logical_cluster: str | None = Field(None, min_length=1, description="Logical cluster of a registry in Confluent Cloud.")
    identity_pool: str | None = Field(None, min_length=1, description="Identity pool in Confluent Cloud.")


class SchemaRegistryOptions(Options):
    """The schema registry of converters that write schemas."""

    url: str = Field(description="Address, http:// or https://. User and password do not belong in it.")
    basic_auth: BasicAuthOptions | None = Field(None, description="User and password.")
    oauth: RegistryOauthOptions | None = Field(None, description="OAuth, in place of user and password.")
    ca_file: str | None = Field(None, description="CA certificates (PEM) that the registry is checked against.")
    cert_file: str | None = Field(None, description="Client certificate (PEM).")
    key_file: str | None = Field(None, description="Client key (PEM).")
    key_password: Secret | None = Field(None, description="Password of the client key.")


class ConvertersOptions(Options):
    """How keys and values become bytes."""

    key: SerializeAsAny[ConverterOptions] | None = Field(None, description="Converter of keys.")
    value: SerializeAsAny[ConverterOptions] | None = Field(None, description="Converter of values.")
    schema_registry: SchemaRegistryOptions | None = Field(None, description="Where converters with schemas find and register them.")


class DeliveryOptions(Options):
    """What is promised and how work is cut."""

    guarantee: Literal["at_least_once", "exactly_once"] = Field(
        "at_least_once",
        description="at_least_once: repeats only in the uncommitted window. exactly_once: none, for consumers with "
        "isolation.level=read_committed; see exactly-once.md.",
    )
    ordering: Literal["file", "none"] = Field(
        "file",
        description="file: order within one file, and within a rotation chain. none, for spool_dir: a large file is cut into ranges of "
        "16 MiB or more that are read side by side; not while `@record.number` is used.",
    )
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


class LimitsOptions(Options):
    """Upper bounds on what a connector sends. They slow it down and never drop anything."""

    records_per_second: int | None = Field(None, ge=1, description="At most so many records per second; no bound when absent.")
    bytes_per_second: ByteSize | None = Field(None, ge=1024, description="At most so many bytes of input per second; no bound when absent.")


class OauthOptions(TokenOptions):
    """OAuth 2 for SASL/OAUTHBEARER. A process asks for one token, which all its clients use until it is about to expire."""

    method: Literal["oidc", "jwt_bearer", "azure_imds", "msk_iam"] = Field(
        "oidc",
        description="oidc: client_id and client_secret (client credentials). jwt_bearer: an assertion in place of a secret. azure_imds: "
        "the managed identity of an Azure host. msk_iam: Amazon MSK, with credentials that AWS's libraries find; needs the extra msk-iam.",
    )
    extensions: dict[str, ScalarText] = Field(
        {},
        description="SASL extensions for the broker, such as logicalCluster and identityPoolId of Confluent Cloud. Names are letters only.",
    )
    region: str | None = Field(None, min_length=1, description="With msk_iam: AWS region of the cluster.")
    role_arn: str | None = Field(None, min_length=1, description="With msk_iam: IAM role to assume. Default: the credentials as they are.")


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
    oauth: OauthOptions | None = Field(None, description="How a token for OAUTHBEARER is got.")


class TopicOptions(Options):
    """How a missing topic is created."""

    partitions: int = Field(1, ge=1, description="Partitions.")
    replication_factor: int = Field(-1, ge=-1, description="Replicas; -1 is the broker's default.")
    config: dict[str, ScalarText] = Field({}, description="Topic configuration.")


class KafkaOptions(Options):
    """The Kafka cluster. In a definition it overrides what agent.yaml says, option by option."""

    bootstrap_servers: tuple[str, ...] = Field((), description="Broker addresses, HOST:PORT.")
    security: SecurityOptions = Field(SecurityOptions(), description="TLS and SASL.")
    client: dict[str, ScalarText] = Field({}, description="Further librdkafka settings by their names.")
    create_topics: TopicOptions | None = Field(None, description="Create missing topics this way; off when absent.")


ConnectorName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""The key of a connector's offsets."""


class CaseFileOptions(Options):
    """The file that the input of a test stands in."""

    path: str | None = Field(None, description="Its path, for @file.path and the like. Default: one that the source would read.")
    mtime: str | None = Field(None, description="When it was last changed, RFC 3339. Default: read_time.")
    inode: int = Field(1, ge=1, description="Its inode, for @file.inode.")


class ExpectedOptions(Options):
    """A record that should come out. What is not named is not compared."""

    topic: str | None = Field(None, description="Its topic.")
    key: ScalarText | None = Field(None, description="Its key as text; null: it has none.")
    value: Any = Field(
        None,
        description="Its value: a map is compared with the fields, those not named may be there; a text with the bytes. "
        'Types count: 200 is not "200". A time is an RFC 3339 text, or epoch milliseconds.',
    )
    headers: dict[str, ScalarText | None] = Field({}, description="Its headers, others may be there; null: it does not have this one.")
    timestamp: str | int | None = Field(None, description="Its timestamp, RFC 3339 or epoch milliseconds; null: that of sending.")
    partition: int | None = Field(None, description="Its partition; null: the producer chooses.")


class ExpectedLetterOptions(Options):
    """A record that should fail: it goes to the dead-letter topic, is passed over, or stops the connector, by `errors`."""

    stage: Literal["frame", "parse", "transform", "record", "convert"] | None = Field(None, description="The stage in which it fails.")
    step: str | None = Field(None, description="The step that fails: its action, such as convert, or its place, transforms[2].")
    reason: Regex | None = Field(None, description="A regular expression that is found in the reason.")


class CaseOptions(Options):
    """A test of the definition: sample input, and what should become of it. Run by `copycat test`."""

    name: str | None = Field(None, min_length=1, max_length=200, description="What it shows, in a few words.")
    input: str | tuple[str, ...] | None = Field(
        None,
        description="Lines of the file: a text, or a list of lines. A log file's last line is complete, see partial; the text of a "
        "spooled file is all of it.",
    )
    input_file: str | None = Field(None, description="Instead of input: a file, packed or not; relative to the definition's.")
    partial: bool = Field(False, description="true: nobody finishes the last line, when the text does not do it.")
    file: CaseFileOptions = Field(CaseFileOptions(), description="What templates and steps know of the file.")
    host: str = Field("test-host", description="The name of this host, for @host.")
    read_time: str = Field("2026-01-01T00:00:00Z", description="When it is read, RFC 3339, for @read_time.")
    expect: tuple[ExpectedOptions, ...] = Field((), description="The records that should come out, in order; [] when none should.")
    exact: bool = Field(False, description="true: fields and headers that are not named must not be there.")
    dead_letters: tuple[ExpectedLetterOptions, ...] = Field((), description="The records that should fail, in order.")

    def model_post_init(self, _: object) -> None:
        """Raise ValueError for what cannot be run; pydantic reports it with its place."""
        if (self.input is None) == (self.input_file is None):
            msg = "a test needs input or input_file, one of them"
            raise ValueError(msg)
        if not self.model_fields_set & {"expect", "dead_letters"}:
            msg = "a test needs expect; [] says that no record comes out"
            raise ValueError(msg)
        for text in (self.read_time, self.file.mtime, *(one.timestamp for one in self.expect)):
            if isinstance(text, str):
                epoch_ms(text)


def epoch_ms(text: str) -> int:
    """An RFC 3339 time as epoch milliseconds. ValueError for any other text."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and "T" in text.upper():
            return round(moment.timestamp() * 1000)
    except ValueError:
        pass  # told below
    msg = "a time is written as in 2026-11-21T05:00:00Z, with its zone"
    raise ValueError(msg)


_MET_BY_RECORDS = ("source", "transforms", "record", "converters")


class Definition(Options):
    """One connector: one YAML file. Compared by value to see whether it changed.

    Its tests are no part of what runs: they count in no comparison, and are not pickled.
    """

    name: ConnectorName = Field(description="The key of its offsets: 1 to 63 lowercase letters, digits and -, not - first.")
    renamed_from: tuple[ConnectorName, ...] = Field((), description="Earlier names of this connector: it takes over their offsets.")
    enabled: bool = Field(True, description="false keeps the definition but does not run it.")
    source: SerializeAsAny[SourceOptions] = Field(description="Where records come from.")
    transforms: tuple[SerializeAsAny[TransformOptions], ...] = Field((), description="Steps, in order.")
    record: RecordOptions = Field(description="How a record looks in Kafka.")
    converters: ConvertersOptions = Field(ConvertersOptions(), description="How keys and values become bytes.")
    delivery: DeliveryOptions = Field(DeliveryOptions(), description="What is promised and how work is cut.")
    errors: ErrorsOptions = Field(ErrorsOptions(), description="What becomes of a record that cannot be made or sent.")
    limits: LimitsOptions = Field(LimitsOptions(), description="Upper bounds on the rate.")
    kafka: KafkaOptions = Field(KafkaOptions(), description="Overrides of the agent's Kafka section.")
    tests: tuple[CaseOptions, ...] = Field((), description="Sample input and the records that should come of it, run by copycat test.")
    _secrets: frozenset[str] = PrivateAttr(frozenset())

    def keep_secret(self, secrets: Iterable[str]) -> None:
        """Texts that `mask` hides. For the loader."""
        self._secrets = frozenset(secrets)

    @property
    def mask(self) -> Mask:
        """For everything that a person is shown of this definition and of its records: hides what came from a file or a credential."""
        return Mask(self._secrets)

    def __eq__(self, other: object) -> bool:
        """Whether they run alike."""
        return super().__eq__(other.model_copy(update={"tests": self.tests}) if isinstance(other, Definition) else other)

    def __hash__(self) -> int:
        """Of those that run alike the same."""
        return hash(self.name)

    def __getstate__(self) -> dict[Any, Any]:
        """What is pickled: all but the tests."""
        state = super().__getstate__()
        return {**state, "__dict__": {**state["__dict__"], "tests": ()}}

    def masked(self) -> dict[str, Any]:
        """See `Options.masked`; without the tests."""
        shown = {name: value for name, value in super().masked().items() if name != "tests"}
        return {name: self.mask.value(value) if name in _MET_BY_RECORDS else value for name, value in shown.items()}


class SparkOptions(Options):
    """The local Spark session."""

    master: str = Field("local", description="local: one core per runner. Or local[N].")
    driver_memory: JvmMemory = Field(512 * 2**20, ge=512 * 2**20, description="Heap of the JVM, at least 512m.")
    conf: dict[str, ScalarText] = Field({}, description="Further Spark settings.")


LogLevel = Literal["debug", "info", "warning", "error"]


class LogOptions(Options):
    """The agent's own log."""

    level: LogLevel = Field("info", description="Least level that is written.")
    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal and under journald, else JSON.")


class ApiTlsOptions(Options):
    """TLS of the port for health and metrics. Renewed files are taken without a restart."""

    cert_file: str = Field(description="Certificate (PEM), with its chain behind it.")
    key_file: str = Field(description="Its key (PEM), without a password.")


class ApiOptions(Options):
    """Where the agent answers."""

    socket: str | None = Field(None, description="Unix socket of the commands; default: agent.sock in the runtime or state directory.")
    listen: str | None = Field(
        None,
        description="HOST:PORT for health and metrics; off when absent. On an address that other hosts reach: /livez, /readyz, /metrics.",
    )
    tls: ApiTlsOptions | None = Field(None, description="TLS at api.listen; off when absent.")
    users: str | None = Field(
        None, description="File of who may ask at api.listen, a line NAME:HASH each as copycat passwd makes it; everybody when absent."
    )
    stalled_after: Duration = Field(
        60.0, gt=0, le=86_400, description="How long nothing may be acknowledged, while something waits, before /healthz answers 503."
    )


class AgentOptions(Options):
    """agent.yaml: what holds for all connectors. Everything has a default."""

    kafka: KafkaOptions = Field(KafkaOptions(), description="Defaults for all connectors.")
    state_dir: str | None = Field(None, description="Directory of offsets and lock; default $STATE_DIRECTORY, else ~/.local/state/copycat.")
    spark: SparkOptions = Field(SparkOptions(), description="The local Spark session.")
    api: ApiOptions = Field(ApiOptions(), description="Where the agent answers.")
    log: LogOptions = Field(LogOptions(), description="The agent's own log.")
