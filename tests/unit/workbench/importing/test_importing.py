"""What an import maps loads; what it does not map is listed with its line; secrets are nowhere."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from copycat_agent.definitions import load_content
from copycat_agent.definitions.formatting import format_text
from copycat_agent.errors import CopycatError
from copycat_agent.options import AgentOptions
from copycat_agent.workbench.importing import PRODUCTS, ImportResult, text_of
from copycat_agent.workbench.importing.common_settings import dissect, duration_of, globs_of, go_layout, pattern_of, references
from copycat_agent.workbench.importing.vrl import matcher_of, statements, steps_of

SHAPES = Path(__file__).parent / "shapes"
FILES = {
    "filebeat.yml": "filebeat", "fluent-bit.conf": "fluent-bit", "fluent-bit.yaml": "fluent-bit", "vector.toml": "vector",
    "vector.yaml": "vector", "stream.properties": "connect", "spooldir.json": "connect", "filepulse.json": "connect",
    "rsyslog.conf": "rsyslog", "flume.properties": "flume", "otel.yaml": "otel",
}  # fmt: skip


def imported(name: str) -> ImportResult:
    extra = [(SHAPES / "parsers.conf").read_text("utf-8")] if name == "fluent-bit.conf" else []
    return PRODUCTS[FILES[name]]((SHAPES / name).read_text("utf-8"), extra)


def documents(found: ImportResult) -> dict[str, Any]:
    return {made.name: yaml.safe_load(text_of(made, "x")) for made in found.made}


def actions(document: dict[str, Any]) -> list[str]:
    return [next(iter(step)) for step in document["transforms"]]


@pytest.mark.parametrize("name", FILES)
def test_what_is_made_loads_and_holds_no_secret(name: str) -> None:
    found = imported(name)
    assert found.made
    for made in found.made:
        text = text_of(made, name)
        assert load_content(Path("x.yaml"), text.encode(), AgentOptions(), resolve_env=False).problems == ()
        assert format_text(text.encode()) == text
        assert "sesame" not in text
    assert "sesame" not in str(found.report)


@pytest.mark.parametrize("name", FILES)
def test_each_key_is_mapped_or_told(name: str) -> None:
    """A key that the import has never heard of is listed, with its line, wherever it is put."""
    text = (SHAPES / name).read_text("utf-8")
    lines = text.splitlines()
    keys = {
        ".yml": "unheard.of: 1",
        ".yaml": "unheard_of: 1",
        ".properties": "unheard.of=1",
        ".json": '"unheard.of": "1",',
        ".toml": "unheard_of = 1",
    }
    places = {
        "filebeat.yml": 3, "fluent-bit.conf": 8, "fluent-bit.yaml": 16, "vector.toml": 11, "vector.yaml": 5, "stream.properties": 2,
        "spooldir.json": 4, "filepulse.json": 2, "rsyslog.conf": 8, "flume.properties": 4, "otel.yaml": 2,
    }  # fmt: skip
    key = keys.get(Path(name).suffix, "Unheard_Of 1")
    indent = lines[places[name]][: len(lines[places[name]]) - len(lines[places[name]].lstrip())]
    lines.insert(places[name], f"{indent}{key}")
    extra = [(SHAPES / "parsers.conf").read_text("utf-8")] if name == "fluent-bit.conf" else []
    found = PRODUCTS[FILES[name]]("\n".join(lines), extra)
    told = [remark for remark in found.report.unmapped if "unheard" in remark.what.lower()]
    assert [remark.line for remark in told] == [places[name] + 1]


def test_filebeat() -> None:
    found = imported("filebeat.yml")
    shop, api, containers = documents(found).values()
    limits = {"max_bytes": "1MiB", "on_too_long": "truncate"}
    assert shop["source"]["multiline"] == {"start": r"^\d{4}-", "timeout": "3s", **limits}, "Filebeat's limit is that of the whole message"
    assert shop["record"] == {"topic": "logs-shop", "partition": "sticky"}, "a field whose value the file names is no template"
    assert actions(shop) == ["drop_if", "set", "drop_fields", "regex"]
    assert actions(api) == ["json", "drop_if", "drop_if", "timestamp", "drop_fields", "regex"]
    assert actions(containers)[0] == "cri"
    assert shop["kafka"]["bootstrap_servers"] == ["k1:9092", "${env:K2}:9092"]
    assert [(one.line, one.what.split(":")[0]) for one in sorted(found.report.unmapped)] == [
        (7, "exclude_files"), (35, "processor script"), (41, "input udp"), (44, "processor add_host_metadata"),
    ]  # fmt: skip


def test_fluent_bit() -> None:
    found = imported("fluent-bit.conf")
    shop, kube = documents(found).values()
    assert actions(shop) == [
        "regex", "timestamp", "drop_fields", "convert", "set", "keep_if", "drop_if", "default", "rename", "drop_fields", "set",
        "drop_fields", "nest",
    ]  # fmt: skip
    assert actions(kube) == ["cri", "set", "drop_fields", "json"]
    assert "start_at" not in shop["source"]
    assert kube["source"]["start_at"] == "end"
    assert [(one.line, one.what) for one in sorted(found.report.unmapped)] == [
        (5, "@SET"), (25, "input cpu"), (56, "filter lua"), (82, "output stdout"),
    ]  # fmt: skip
    assert imported("fluent-bit.yaml").report.unmapped == []


def test_rsyslog() -> None:
    found = imported("rsyslog.conf")
    shop, api = documents(found).values()
    assert shop["source"] == {"type": "log_file", "include": ["/var/log/shop/*.log"], "multiline": {"start": r"^[\d]{4}-"}}
    assert api["source"] == {"type": "log_file", "include": ["/var/log/api.log"], "start_at": "end"}
    for one in (shop, api):
        assert one["record"] == {"topic": "logs.shop"}
        assert one["kafka"]["bootstrap_servers"] == ["k1:9092", "k2:9092"]
        assert one["kafka"]["security"]["protocol"] == "SASL_SSL"
        assert one["kafka"]["client"] == {"compression.codec": "lz4"}
    assert [(one.line, one.what.split(" ")[0]) for one in sorted(found.report.unmapped)] == [
        (8, "readMode"), (9, "input"), (10, "auth,authpriv.*"), (13, "if"), (18, "action"),
    ]  # fmt: skip


def test_an_input_of_rsyslog_without_an_action_to_kafka_is_told() -> None:
    found = PRODUCTS["rsyslog"]('input(type="imfile" File="/var/log/a.log" Tag="a")', [])
    assert [one.what for one in found.report.unmapped] == ["input a"]
    assert PRODUCTS["rsyslog"]("", []).made == ()


def test_flume() -> None:
    found = imported("flume.properties")
    shop, spool = documents(found).values()
    assert shop["source"] == {"type": "log_file", "include": ["/var/log/shop/*.log", "/var/log/api.log"], "start_at": "end"}
    assert shop["kafka"]["security"]["protocol"] == "SASL_SSL"
    assert spool["source"]["exclude"] == ["*.COMPLETED"]
    assert [one["record"]["topic"] for one in (shop, spool)] == ["logs.shop", "orders"]
    assert [(one.line, one.what.split(" ")[0]) for one in sorted(found.report.unmapped)] == [(15, "includePattern"), (16, "source")]


def test_a_spooldir_of_flume_whose_files_keep_their_names_and_lie_deeper() -> None:
    text = (SHAPES / "flume.properties").read_text()
    more = "\na1.sources.spool.trackingPolicy = tracker_dir\na1.sources.spool.recursiveDirectorySearch = true\n"
    found, before = PRODUCTS["flume"](text + more, []), imported("flume.properties")
    assert documents(found)["spool"]["source"]["recursive"] is True
    assert len(found.report.unmapped) == len(before.report.unmapped)
    assert "--positions with the spoolDir" in next(one.why for one in found.report.notes if one.what == "trackingPolicy")


def test_the_collector() -> None:
    found = imported("otel.yaml")
    shop, other = documents(found).values()
    assert shop["source"] == {
        "type": "log_file", "include": ["/var/log/shop/*.log", "/var/log/api.log"], "exclude": ["*.gz"], "encoding": "utf-16-le",
        "multiline": {"start": r"^\d{4}-"},
    }  # fmt: skip
    assert shop["kafka"]["security"]["mechanism"] == "SCRAM-SHA-512"
    assert other["source"] == {"type": "log_file", "include": ["/var/log/other.log"], "start_at": "end", "scan_interval": "1s"}
    assert [(one.line, one.what) for one in sorted(found.report.unmapped)] == [
        (0, "receiver filelog"), (10, "operator json_parser"), (15, "receiver otlp"), (27, "exporter debug"),
        (35, "processor attributes/env of logs"),
    ]  # fmt: skip


def test_fluent_bits_files_and_times_are_those_that_it_means() -> None:
    text = (
        "[INPUT]\n  Name tail\n  Path /x\n  Rotate_Wait 30\n  Multiline On\n  Parser_Firstline p\n"
        "[PARSER]\n  Name p\n  Format regex\n  Regex /^(?<at>\\d+) (?<log>.*)/m\n  Time_Key at\n  Time_Format %s\n"
        "[OUTPUT]\n  Name kafka\n  Match *\n  Timestamp_Key when\n"
    )
    found = PRODUCTS["fluent-bit"](text, [])
    (made,) = documents(found).values()
    assert made["source"]["rotate_wait"] == "30s"
    assert made["source"]["multiline"] == {"start": r"(?s)^(?P<at>\d+) (?P<log>.*)"}, "Ruby's m lets a dot match a line end"
    assert actions(made) == ["regex", "timestamp", "drop_fields"], "Time_Keep is off when nothing is said"
    assert [one.what for one in found.report.notes if "timestamp_key" in one.what] == ["timestamp_key when"]
    kept = PRODUCTS["fluent-bit"](text.replace("Time_Key at", "Time_Key at\n  Time_Keep On"), [])
    assert actions(documents(kept)["tail-0"]) == ["regex", "timestamp"]


def test_limits_of_lines_are_no_policy_for_records_of_several() -> None:
    """A definition with a policy that is not used would get a warning."""
    fluent = "[INPUT]\n  Name tail\n  Path /x\n  Skip_Long_Lines On\n%s[OUTPUT]\n  Name kafka\n  Match *\n"
    (plain,) = documents(PRODUCTS["fluent-bit"](fluent % "", [])).values()
    assert plain["source"]["line"] == {"on_too_long": "drop"}
    found = PRODUCTS["fluent-bit"](fluent % "  Multiline.Parser java\n", [])
    (made,) = documents(found).values()
    assert "line" not in made["source"]
    assert "skip_long_lines" in [one.what for one in found.report.notes]
    rule = "{mode: halt_before, condition_pattern: ^x, start_pattern: ^x}"
    text = f"sources: {{a: {{type: file, include: [/x.log], max_line_bytes: 5000, multiline: {rule}}}}}\n"
    found = PRODUCTS["vector"](text + "sinks: {k: {type: kafka, inputs: [a], topic: t, bootstrap_servers: b}}\n", [])
    (made,) = documents(found).values()
    assert made["source"]["line"] == {"max_bytes": "5000B"}
    filebeat = "filebeat.inputs:\n- {type: log, paths: [/x], multiline: {pattern: ^x, max_lines: 9}}\n"
    (made,) = documents(PRODUCTS["filebeat"](filebeat, [])).values()
    assert (made["source"]["multiline"]["max_lines"], made["source"]["multiline"]["on_too_long"]) == (9, "truncate")


def test_types_of_a_schema_of_connect_become_those_of_columns() -> None:
    fields = {"id": {"type": "INT64"}, "t": {"type": "STRING"}, "at": {"type": "INT64", "name": "org.apache.kafka.connect.data.Timestamp"}}
    config = {
        "connector.class": "com.github.jcustenborder.kafka.connect.spooldir.SpoolDirCsvSourceConnector", "input.path": "/in",
        "topic": "t", "finished.path": "/done", "error.path": "/bad",
        "value.schema": json.dumps({"type": "STRUCT", "fieldSchemas": fields}),
    }  # fmt: skip
    (made,) = documents(PRODUCTS["connect"](json.dumps({"name": "a", "config": config}), [])).values()
    assert made["source"]["format"]["types"] == {"id": "int", "at": "timestamp"}
    found = PRODUCTS["connect"](json.dumps({"name": "a", "config": config | {"value.schema": "{}"}}), [])
    assert [one.what for one in found.report.unmapped] == ["value.schema"]


def test_vector() -> None:
    found = imported("vector.toml")
    (shop,) = documents(found).values()
    assert shop["transforms"][-3]["keep_if"] == {"status": {"ge": 200, "lt": 500}, "client": {"not": {"matches": r"^127\."}}}
    assert shop["record"] == {"topic": "shop-{env}", "key": "{client}", "timestamp": "event"}
    assert [one.line for one in sorted(found.report.unmapped)] == [33, 36, 70]
    assert documents(imported("vector.yaml")).keys() == {"app-kafka", "pods-kafka"}


def test_a_vector_without_kafka_gets_a_topic_for_now() -> None:
    text = "sources: {a: {type: file, include: [/var/log/a.log]}}\nsinks: {s3: {type: aws_s3, inputs: [a], bucket: b}}\n"
    found = PRODUCTS["vector"](text, [])
    (document,) = documents(found).values()
    assert (document["name"], document["record"]["topic"]) == ("a", "logs.imported")
    assert [(one.line, one.what) for one in found.report.unmapped] == [(2, "sink s3 (aws_s3)")]


def test_connect() -> None:
    (orders,) = documents(imported("spooldir.json")).values()
    assert orders["source"] == {
        "type": "spool_dir", "dir": "/var/spool/orders/in", "pattern": "orders-*.csv", "ready": {"min_age": "5000ms"},
        "format": {"type": "csv", "header": True, "delimiter": ";"},
        "cleanup": {"policy": "move_by_date", "to": "/var/spool/orders/done", "failed_to": "/var/spool/orders/failed"},
    }  # fmt: skip
    assert orders["record"] == {"topic": "orders-{@timestamp:%Y%m}", "key": "{order_id}"}
    assert actions(orders) == ["convert", "mask", "timestamp", "drop_fields", "rename"]
    (lines,) = documents(imported("stream.properties")).values()
    assert lines["record"]["topic"] == "logs.shop.lines"
    assert lines["kafka"]["security"]["password"] == "${cred:kafka_password}"
    (pulse,) = documents(imported("filepulse.json")).values()
    assert pulse["source"]["pattern"] == ["*.log", "*.txt"]


@pytest.mark.parametrize(
    ("settings", "password"),
    [
        ("url=http://reader:s3cret@r1:8081,http://reader:s3cret@r2:8081", "${cred:registry_password}"),
        ("url=http://reader:s3cret@r1:8081\nvalue.converter.basic.auth.credentials.source=URL", "${cred:registry_password}"),
        ("url=http://reader:${file:/opt/s.properties:pw}@r1:8081", "${cred:pw}"),
        ("url=http://r1:8081\nvalue.converter.basic.auth.user.info=reader:s3cret", "${cred:registry_password}"),
        ("url=http://r1:8081\nvalue.converter.basic.auth.user.info=reader:${file:/opt/s.properties:pw}", "${cred:pw}"),
    ],
)
def test_a_login_of_connects_schema_registry_becomes_a_reference(settings: str, password: str) -> None:
    text = f"""name=orders
connector.class=FileStreamSource
file=/var/log/a.log
topic=orders
value.converter=io.confluent.connect.avro.AvroConverter
value.converter.schema.registry.{settings}
"""
    found = PRODUCTS["connect"](text, [])
    (made,) = found.made
    registry = made.document["converters"]["schema_registry"]
    assert registry == {"url": "http://r1:8081", "basic_auth": {"username": "reader", "password": password}}
    assert ["login of the schema registry" in one.what for one in found.report.notes if one.line == 6 + settings.count("user.info")] == (
        [True] if password == "${cred:registry_password}" else []
    )
    assert "s3cret" not in text_of(made, "x") + str(found.report)
    assert not found.report.unmapped


@pytest.mark.parametrize(
    ("pattern", "globs", "is_same"),
    [
        (r"^orders-.*\.csv$", ["orders-*.csv"], True),
        (r".+\.(csv|tsv)", ["*.csv", "*.tsv"], True),
        (r"[a-z].*", ["[a-z]*"], True),
        (r"^orders-\d+\.csv$", ["orders-[0-9]*.csv"], False),
        (r"^[a-z]*\.csv$", ["[a-z]*.csv"], False),
        (r"ab*", ["ab*"], False),
        (r"[a-z]+\.csv", ["*"], False),
    ],
)
def test_a_pattern_of_names_that_means_others_here_is_told(pattern: str, globs: list[str], is_same: bool) -> None:
    assert globs_of(pattern) == (globs, is_same)
    spool = "name=o\nconnector.class=c.SpoolDirLineDelimitedSourceConnector\ninput.path=/in\nfinished.path=/f\nerror.path=/e\ntopic=o\n"
    escaped = pattern.replace("\\", "\\\\")
    flume = "a.sources=s\na.sinks=k\na.channels=c\na.sources.s.type=TAILDIR\na.sources.s.channels=c\na.sources.s.filegroups=g\n"
    flume += f"a.sources.s.filegroups.g=/in/{escaped}\na.sinks.k.type=org.apache.flume.sink.kafka.KafkaSink\na.sinks.k.channel=c\n"
    for product, text in (("connect", f"{spool}input.file.pattern={escaped}\n"), ("flume", flume)):
        found = PRODUCTS[product](text, [])
        assert ["for now, which means other names" in one.why for one in found.report.unmapped] == [True] * (not is_same), product


@pytest.mark.parametrize(("negate", "ends"), [(False, ["a", "b+"]), (True, ["+ a", "b\\\\"])])
def test_lines_that_go_on_with_the_next_one_end_where_filebeat_ends_them(negate: bool, ends: list[str]) -> None:
    text = f"filebeat.inputs: [{{type: log, paths: [/a], multiline: {{pattern: '^\\+|\\\\$', negate: {negate}, match: before}}}}]\n"
    (made,) = PRODUCTS["filebeat"](text.replace("True", "true").replace("False", "false"), []).made
    rule = made.document["source"]["multiline"]["ends"]
    assert [line for line in ("a", "+ a", "b+", "b\\\\") if re.search(rule, line)] == ends


FILEBEAT = (
    "filebeat.inputs: [{type: log, paths: [/a], fields: {a: 'x{b}y', c: ['{d}', 1]}}]\nprocessors: [add_labels: {labels: {e: '{f}'}}]\n"
)
SPOOL = """name=o
connector.class=FileStreamSource
file=/a
topic=o
transforms=a
transforms.a.type=org.apache.kafka.connect.transforms.InsertField$Value
transforms.a.static.field=a
transforms.a.static.value=x{b}y
"""


@pytest.mark.parametrize(
    ("product", "text", "values"),
    [
        ("connect", SPOOL, [{"a": "x{{b}}y"}]),
        ("filebeat", FILEBEAT, [{"fields.a": "x{{b}}y", "fields.c": ["{{d}}", 1]}, {"labels.e": "{{f}}"}]),
        (
            "fluent-bit",
            "[INPUT]\n  Name tail\n  Path /a\n[FILTER]\n  Name modify\n  Match *\n  Set a x{b}y${C}\n",
            [{"a": "x{{b}}y${env:C}"}],
        ),
    ],
)
def test_braces_of_a_constant_name_no_field(product: str, text: str, values: list[dict[str, Any]]) -> None:
    made = PRODUCTS[product](text, []).made[0]
    assert [step["set"] for step in made.document["transforms"] if "set" in step] == values


def test_what_cannot_be_read_says_where() -> None:
    for product, text in (("filebeat", "a: [1\nb"), ("vector", "[sources.a]\nx = = 1\n"), ("connect", "{"), ("fluent-bit", "pipeline: [")):
        with pytest.raises(CopycatError, match="line"):
            PRODUCTS[product](text, [])


@pytest.mark.parametrize(
    ("statement", "steps"),
    [
        (". = parse_json!(.message)", [{"json": {}}]),
        (". |= object!(parse_json!(string!(.message)))", [{"json": {"keep_source": True}}]),
        ("., err = parse_json(.message)", [{"json": {}}]),
        (".data = parse_json!(.payload)", [{"json": {"field": "payload", "into": "data", "keep_source": True}}]),
        (". = merge(., parse_key_value!(.message))", [{"key_value": {"keep_source": True}}]),
        (r". = parse_regex!(.message, r'^(?<a>\d+)')", [{"regex": r"^(?P<a>\d+)"}]),
        ('. = parse_grok!(.message, "%{SYSLOGLINE}")', [{"grok": {"pattern": "%{SYSLOGLINE}"}}]),
        ("del(.a.b)", [{"drop_fields": ["a.b"]}]),
        (".new = del(.old)", [{"rename": {"old": "new"}}]),
        ('.env = "prod"', [{"set": {"env": "prod"}}]),
        ('.env = "{x}"', [{"set": {"env": "{{x}}"}}]),
        (".copy = .a.b", [{"set": {"copy": "{a.b}"}}]),
        (".n = to_int(.n) ?? 0", [{"convert": {"n": "int"}, "on_error": "keep"}]),
        ('if .level == "debug" { abort }', [{"drop_if": {"level": "debug"}}]),
        (".a = upcase!(.a)", None),
        ("for_each(.a) -> |k, v| { }", None),
        ('.a = "{{ b }}"', None),
    ],
)  # fmt: skip
def test_a_statement_of_vrl(statement: str, steps: list[dict[str, Any]] | None) -> None:
    assert [one for _, one in statements(statement)] == [statement]
    assert steps_of(statement) == steps


def test_conditions_of_vrl() -> None:
    assert matcher_of('.a == "x" && .b > 3 && exists(.c)') == {"a": "x", "b": {"gt": 3}, "c": {"exists": True}}
    assert matcher_of('(contains(string!(.message), "a.b"))') == {"message": {"matches": r"a\.b"}}
    assert matcher_of(".a == 1 || .b == 2") is None
    assert matcher_of("length(.a) > 3") is None


def test_small_things() -> None:
    assert [duration_of(text) for text in ("10s", "5", "1h30m", "soon")] == ["10s", "5s", "5400s", None]
    assert go_layout("2006-01-02 15:04:05.000 -0700") == "%Y-%m-%d %H:%M:%S.%f %z"
    assert go_layout("2006-002") is None
    assert pattern_of(r"^[[:space:]](?<a>\d)\z") == r"^[\s](?P<a>\d)\Z"
    assert pattern_of("(?<!a") is None
    assert references("${A:b}-$C-${file:/x:pw}") == "${env:A:-b}-${env:C}-${cred:pw}"
    assert dissect("%{a} - [%{b}] %{?skip} %{c}") == r"^(?P<a>.*?) - \[(?P<b>.*?)\] .*? (?P<c>(?s:.*))"
    assert dissect("%{+a} %{b}") is None


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [one for key, each in inner for one in ((*place, key), *places(each, (*place, key)))]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".yml", ".yaml", ".json"))])
def test_no_value_that_is_another_than_expected_breaks_an_import(name: str) -> None:
    """One after the other, and turn and turn about."""
    text = (SHAPES / name).read_text("utf-8")
    whole = json.dumps(json.loads(text) if name.endswith(".json") else yaml.safe_load(text))
    for place, odd in zip(places(json.loads(whole)), itertools.cycle(("x", [{}], {"a": []})), strict=False):
        document = inner = json.loads(whole)
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = odd
        assert PRODUCTS[FILES[name]](json.dumps(document), []).made is not None


@pytest.mark.parametrize(
    ("options", "share"), [("rate: 10", 0.1), ("rate: 1", 1.0), ("ratio: 0.25", 0.25), ("rate: x", None), ("rate: 0", None)]
)
def test_a_sample_of_vector_is_the_same_share_here(options: str, share: float | None) -> None:
    text = (
        "sources: {a: {type: file, include: [/x]}}\ntransforms: {s: {type: sample, inputs: [a], " + options + "}}\n"
        "sinks: {k: {type: kafka, inputs: [s], bootstrap_servers: 'k:9092', topic: t, encoding: {codec: json}}}\n"
    )
    found = PRODUCTS["vector"](text, [])
    (made,) = documents(found).values()
    assert made.get("transforms", []) == ([{"sample": share}] if share else [])
    assert bool(found.report.unmapped) == (share is None)


@pytest.mark.parametrize(
    ("product", "text"),
    [
        (
            "fluent-bit",
            "[INPUT]\n  Name tail\n  Path /var/log/containers/*.log\n[OUTPUT]\n  Name kafka\n  Match *\n  Brokers h:9092\n  Topics t\n",
        ),
        (
            "filebeat",
            "filebeat.inputs: [{type: container, paths: [/var/log/containers/*.log]}]\noutput.kafka: {hosts: ['h:9092'], topic: t}\n",
        ),
    ],
)
def test_links_to_the_logs_of_containers_are_followed_as_the_product_did(product: str, text: str) -> None:
    found = PRODUCTS[product](text, [])
    (document,) = documents(found).values()
    assert document["source"]["follow_symlinks"] is True
    assert document["source"]["symlink_roots"] == ["/var/log/pods"]
