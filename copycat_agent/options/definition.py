"""The options of a definition, including its samples and tests, and those of agent.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, SerializeAsAny, StringConstraints

from copycat_agent.display import SecretMask
from copycat_agent.options.kafka_access import KafkaOptions, SchemaRegistryOptions
from copycat_agent.options.values import ByteSize, Duration, JvmMemory, Options, Regex, ScalarText


class SourceOptions(Options):
    """Base of a source's options. `type` is the name in `sources.SOURCES`; each source narrows it to its own literal."""

    type: str = Field(description="Kind of source.")

    def completed(self, definition: Definition) -> Self:
        """Returns the options completed by other sections of their definition; most sources need none."""
        del definition
        return self


class SinkOptions(Options):
    """Base of a sink's options. `type` is the name in `sinks.SINKS`."""

    type: str = Field(description="Kind of sink.")

    @property
    def has_topics(self) -> bool:
        """Returns whether records go to topics, so that `delivery.guarantee` applies. Files are exactly once under either guarantee."""
        return True

    @property
    def address(self) -> str:
        """Returns its address, for people; "" for topics, which have names of their own."""
        return ""

    @property
    def prefix_bytes(self) -> int:
        """Returns how many bytes its address takes of the limited length of a file's key."""
        return 0

    @property
    def places(self) -> tuple[str, ...]:
        """Returns patterns of all paths that it touches in mounted file systems; empty if there are none."""
        return ()


class KafkaSinkOptions(SinkOptions):
    """Topics of the cluster that the section `kafka` names; `record` says which."""

    type: Literal["kafka"] = Field("kafka", description="Topics.")


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
    key: str | None = Field(
        None, description="Template of the record key; when absent no key, and of records that come from Kafka the key they had."
    )
    value: str | None = Field(
        None,
        min_length=1,
        description="Template of the value. One that is exactly one field, such as {payload}, takes that field as it is, an object or a "
        "number too; null is a bad record. Default: all fields, or the raw bytes while no transform has made fields.",
    )
    headers: dict[str, ScalarText] = Field(
        {}, description="Header names and their templates. Records that come from Kafka keep theirs, in front of these."
    )
    partition: Literal["key", "sticky", "file", "source"] | int = Field(
        "key",
        description="key: by the key's murmur2 hash as Java clients do, without a key in sticky runs. sticky: ignores the key. "
        "file: one file, one partition. source: the number that it had in Kafka, for source kafka. A number: that partition.",
    )
    timestamp: Literal["read", "event", "file", "broker"] = Field(
        "read",
        description="read: when the record is sent. event: what a transform has set, such as timestamp, cri or syslog, or the time that it "
        "had in Kafka, which is the default with source kafka; as read where there is none. "
        "file: the file's modification time. broker: when the broker takes it; the topic needs message.timestamp.type=LogAppendTime.",
    )
    origin_headers: bool = Field(
        False, description="Adds copycat.file, copycat.offset and copycat.end, with which a consumer can drop repeats."
    )


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
    positions: Literal["local", "kafka"] | None = Field(
        None,
        description="kafka: only for an agent with an agent_id, which keeps all its state in Kafka; local: only for one without. "
        "Without it either will do. exactly_once keeps positions in Kafka in both.",
    )
    linger: Duration = Field(
        0.05,
        ge=0,
        le=60,
        description="Pause between rounds, so that a trickle is not one round per line. Above 50ms no batch stays at the end of a log.",
    )  # fmt: skip


class DlqOptions(Options):
    """Where records go that cannot be delivered."""

    topic: str = Field(description="Dead-letter topic.", pattern=r"^[A-Za-z0-9._-]{1,249}$")
    include_raw: bool = Field(True, description="The raw bytes are the dead letter's value; false leaves it empty.")


class ErrorsOptions(Options):
    """What becomes of a record that cannot be made or sent."""

    tolerance: Literal["none", "all"] = Field(
        "none",
        description="none: a bad record stops the connector. all: it goes to the dead-letter topic or, without one, "
        "is skipped and counted.",
    )
    dlq: DlqOptions | None = Field(None, description="The dead-letter topic.")
    retry_timeout: Literal["forever"] | Duration = Field("forever", description="How long retriable errors are retried before FAILED.")
    retry_max_delay: Duration = Field(5.0, gt=0, le=3600, description="Upper bound of the back-off between retries.")


class LimitsOptions(Options):
    """Upper bounds on what a connector sends. They slow it down and never drop anything."""

    records_per_second: int | None = Field(None, ge=1, description="At most so many records per second; no bound when absent.")
    bytes_per_second: ByteSize | None = Field(None, ge=1024, description="At most so many bytes of input per second; no bound when absent.")


ConnectorName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""The key of a connector's offsets."""


class CaseFileOptions(Options):
    """The file that the input of a test stands in."""

    path: str | None = Field(None, description="Its path, for @file.path and the like. Default: one that the source would read.")
    mtime: str | None = Field(None, description="When it was last changed, RFC 3339. Default: read_time.")
    inode: int = Field(1, ge=1, description="Its inode, for @file.inode.")
    owner: str = Field("root", description="Its owner, for @file.owner.")
    group: str = Field("root", description="Its group, for @file.group.")
    mode: str = Field("0644", pattern="^[0-7]{4}$", description="Its mode, for @file.mode.")


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
    partial: bool = Field(False, description="true: a last line without a line end stays unfinished.")
    file: CaseFileOptions = Field(CaseFileOptions(), description="What templates and steps know of the file.")
    host: str = Field("test-host", description="The name of this host, for @host.")
    read_time: str = Field("2026-01-01T00:00:00Z", description="When it is read, RFC 3339, for @read_time.")
    expect: tuple[ExpectedOptions, ...] = Field((), description="The records that should come out, in order; [] when none should.")
    exact: bool = Field(False, description="true: fields and headers that are not named must not be there.")
    dead_letters: tuple[ExpectedLetterOptions, ...] = Field((), description="The records that should fail, in order.")

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for a test that cannot be run; pydantic reports it with its place."""
        if (self.input is None) == (self.input_file is None):
            raise ValueError("a test needs input or input_file, one of them")
        if not self.model_fields_set & {"expect", "dead_letters"}:
            raise ValueError("a test needs expect; [] says that no record comes out")
        for text in (self.read_time, self.file.mtime, *(one.timestamp for one in self.expect)):
            if isinstance(text, str):
                epoch_ms(text)


def epoch_ms(text: str) -> int:
    """Converts an RFC 3339 time to epoch milliseconds. Raises ValueError for any other text."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and "T" in text.upper():
            return round(moment.timestamp() * 1000)
    except ValueError:
        pass  # reported below
    raise ValueError("a time is written as in 2026-11-21T05:00:00Z, with its zone")


_MET_BY_RECORDS = ("source", "transforms", "sink", "record", "converters")


class Definition(Options):
    """One connector: one YAML file. Compared by value to see whether it changed.

    Its tests are no part of what runs: they count in no comparison, and are not pickled.
    """

    name: ConnectorName = Field(description="The key of its offsets: 1 to 63 lowercase letters, digits and -, not - first.")
    renamed_from: tuple[ConnectorName, ...] = Field((), description="Earlier names of this connector: it takes over their offsets.")
    enabled: bool = Field(True, description="false keeps the definition but does not run it.")
    source: SerializeAsAny[SourceOptions] = Field(description="Where records come from.")
    transforms: tuple[SerializeAsAny[TransformOptions], ...] = Field((), description="Steps, in order.")
    sink: SerializeAsAny[SinkOptions] = Field(KafkaSinkOptions(), description="Where records go: topics when absent.")
    record: RecordOptions = Field(description="How a record looks in Kafka. Needed unless `sink` is another.")
    converters: ConvertersOptions = Field(ConvertersOptions(), description="How keys and values become bytes.")
    delivery: DeliveryOptions = Field(DeliveryOptions(), description="What is promised and how work is cut.")
    errors: ErrorsOptions = Field(ErrorsOptions(), description="What becomes of a record that cannot be made or sent.")
    limits: LimitsOptions = Field(LimitsOptions(), description="Upper bounds on the rate.")
    kafka: KafkaOptions = Field(KafkaOptions(), description="Overrides of the agent's Kafka section.")
    tests: tuple[CaseOptions, ...] = Field((), description="Sample input and the records that should come of it, run by copycat test.")
    _secrets: frozenset[str] = PrivateAttr(frozenset())

    def keep_secret(self, secrets: Iterable[str]) -> None:
        """Sets the texts that `mask` hides. Called by the loader."""
        self._secrets = frozenset(secrets)

    @property
    def mask(self) -> SecretMask:
        """Returns a mask for everything that people see of this definition and its records: it hides texts from files and credentials."""
        return SecretMask(self._secrets)

    def __eq__(self, other: object) -> bool:
        """Returns whether both run alike: tests do not count."""
        return super().__eq__(other.model_copy(update={"tests": self.tests}) if isinstance(other, Definition) else other)

    def __hash__(self) -> int:
        """Returns equal hashes for equal definitions."""
        return hash(self.name)

    def __getstate__(self) -> dict[Any, Any]:
        """Returns the state to pickle, without the tests."""
        state = super().__getstate__()
        return {**state, "__dict__": {**state["__dict__"], "tests": ()}}

    @property
    def promise(self) -> Literal["at_least_once", "exactly_once"]:
        """Returns the guarantee for each record that is written."""
        return self.delivery.guarantee if self.sink.has_topics else "exactly_once"

    @property
    def target(self) -> str:
        """Returns where records go, for people: the topic, or the address of files, with templates unrendered."""
        return f"{self.sink.address}{self.record.topic}"

    def masked(self) -> dict[str, Any]:
        """Returns all options but the tests as plain JSON values, with every secret hidden."""
        shown = {name: value for name, value in super().masked().items() if name != "tests"}
        return {name: self.mask.value(value) if name in _MET_BY_RECORDS else value for name, value in shown.items()}


class SparkOptions(Options):
    """The local Spark session."""

    master: str = Field("local", description="local: one runner per core, four at most. local[N]: N runners.")
    driver_memory: JvmMemory = Field(512 * 2**20, ge=512 * 2**20, description="Heap of the JVM, at least 512m.")
    conf: dict[str, ScalarText] = Field({}, description="Further Spark settings.")


LogLevel = Literal["debug", "info", "warning", "error"]


class LogOptions(Options):
    """The agent's own log."""

    level: LogLevel = Field("info", description="Least level that is written.")
    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal and under journald, else JSON.")


class ApiTlsOptions(Options):
    """TLS of the ports. Renewed files are taken without a restart."""

    cert_file: str = Field(description="Certificate (PEM), with its chain behind it.")
    key_file: str = Field(description="Its key (PEM), without a password.")


class ApiConnectOptions(Options):
    """Kafka Connect's REST API, for its clients."""

    listen: str = Field(
        description="HOST:PORT, as in 127.0.0.1:8083. An address that other hosts reach needs api.tls and api.users. Without api.users "
        "every user of this host may read there, and nobody may change anything.",
    )
    writable: bool = Field(
        False,
        description="true lets users with the role operate create, change and delete definitions, as files of the directory that the agent "
        "runs. Needs api.users and roots.",
    )
    roots: tuple[str, ...] = Field(
        (),
        description="With writable: directories, as absolute paths. What clients define reads, and cleans up, files below these alone.",
    )


class ApiPageOptions(Options):
    """The page to look at, for browsers."""

    listen: str = Field(
        description="HOST:PORT, as in 127.0.0.1:8090. An address that other hosts reach needs api.tls and api.users. Without api.users "
        "every user of this host may look.",
    )


class ApiOptions(Options):
    """Where the agent answers."""

    socket: str | None = Field(None, description="Unix socket of the commands; default: agent.sock in the runtime or state directory.")
    listen: str | None = Field(
        None,
        description="HOST:PORT for health and metrics; off when absent. On an address that other hosts reach: /livez, /readyz, /metrics.",
    )
    tls: ApiTlsOptions | None = Field(None, description="TLS at api.listen, api.connect.listen and api.page.listen; off when absent.")
    users: str | None = Field(
        None,
        description="File of who may ask at api.listen, api.connect.listen and api.page.listen, a line NAME:HASH each as copycat passwd "
        "makes it; everybody when absent.",
    )
    connect: ApiConnectOptions | None = Field(None, description="Kafka Connect's REST API, see api.md; off when absent.")
    page: ApiPageOptions | None = Field(None, description="The page to look at, see ui.md; off when absent.")
    stalled_after: Duration = Field(
        60.0, gt=0, le=86_400, description="How long nothing may be acknowledged, while something waits, before /healthz answers 503."
    )


class AgentOptions(Options):
    """agent.yaml: what holds for all connectors. Everything has a default."""

    agent_id: ConnectorName | None = Field(
        None,
        description="Keeps all state of this agent in Kafka, under this name. Of the processes with one name one runs, and another can "
        "take over (run --standby), see failover.md. 1 to 63 lowercase letters, digits and -, not - first.",
    )
    kafka: KafkaOptions = Field(KafkaOptions(), description="Defaults for all connectors.")
    state_dir: str | None = Field(None, description="Directory of offsets and lock; default $STATE_DIRECTORY, else ~/.local/state/copycat.")
    spark: SparkOptions = Field(SparkOptions(), description="The local Spark session.")
    api: ApiOptions = Field(ApiOptions(), description="Where the agent answers.")
    log: LogOptions = Field(LogOptions(), description="The agent's own log.")
