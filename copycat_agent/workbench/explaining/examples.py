"""Examples of options whose type gives no good one: values, whole items of lists, and options that they need beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PARSERS: Mapping[str, str] = {
    "regex": "pattern: '^(?P<level>[A-Z]+) (?P<text>.*)'",
    "grok": 'pattern: "%{COMMONAPACHELOG}"',
    "syslog": "",
    "cri": "",
    "docker": "",
    "json": "",
    "logfmt": "",
    "csv": "columns: [id, qty, price]",
    "key_value": 'field_split: ";"',
}
"""Further options that a parser needs, or usually has."""
_PARSING = {"field": "log", "into": "parsed", "keep_source": "true"}
_OPTIONS: Mapping[str, str] = {
    "regex.pattern": "['^(?P<a>A.*)', '^(?P<b>B.*)']",
    "grok.pattern": '"%{SYSLOGLINE}"',
    "grok.definitions": "{ORDER: '[A-Z]{2}[0-9]+'}",
    "grok.set": "legacy",
    "syslog.format": "rfc3164",
    "syslog.zone": "Europe/Berlin",
    "csv.columns": "[id, name, qty]",
    "csv.delimiter": '";"',
    "csv.quote": "none",
    "csv.doublequote": "false",
    "csv.escape": "'\\'",
    "csv.null": '["", "-"]',
    "csv.null_quoted": "true",
    "csv.trim": "true",
    "csv.types": "{qty: int, price: decimal}",
    "csv.timestamp_zone": "UTC",
    "csv.decimal_point": '","',
    "csv.too_few": "error",
    "csv.too_many": "drop",
    "key_value.field_split": '";"',
    "key_value.value_split": '":"',
    "key_value.quote": "none",
    "key_value.escape": '""',
    "key_value.trim": "' \"'",
    "key_value.prefix": "kv_",
    "key_value.duplicates": "list",
    "key_value.bare": "drop",
}
"""Values of the common options of `_PARSERS`."""
_ITEMS: Mapping[str, str] = {
    "on_error": "{convert: {status: int}, on_error: keep}",
    "regex": "{regex: '^(?P<client>[^ ]+) (?P<status>[0-9]+)'}",
    "grok": '{grok: "%{COMMONAPACHELOG}"}',
    "syslog": "{syslog: {zone: UTC}}",
    "cri": "{cri: {}}",
    "docker": "{docker: {}}",
    "json": "{json: {}}",
    "logfmt": "{logfmt: {}}",
    "csv": '{csv: {columns: [id, name, qty], delimiter: ";"}}',
    "key_value": '{key_value: {field_split: "|", value_split: "="}}',
    "timestamp": '{timestamp: {field: ts, format: "%d/%b/%Y:%H:%M:%S %z"}}',
    "timestamp.field": "{timestamp: {field: ts}}",
    "timestamp.format": "{timestamp: {field: ts, format: [rfc3339, unix_ms]}}",
    "timestamp.zone": "{timestamp: {field: ts, zone: Europe/Berlin}}",
    "timestamp.into": '{timestamp: {field: ts, into: "at"}}',
    "timestamp.as": '{timestamp: {field: ts, into: "at", as: unix_ms}}',
    "convert": "{convert: {status: int, took: double}}",
    "null": '{convert: {bytes: int}, null: "-"}',
    "timestamp_zone": "{convert: {day: timestamp}, timestamp_zone: UTC}",
    "decimal_point": '{convert: {price: decimal}, decimal_point: ","}',
    "rename": "{rename: {msg: message, user: labels.user}}",
    "set": '{set: {env: prod, host: "{@host}"}}',
    "default": "{default: {level: info}}",
    "drop_fields": "{drop_fields: [tmp, user.password]}",
    "keep_fields": "{keep_fields: [time, level, message]}",
    "flatten": "{flatten: {}}",
    "flatten.field": "{flatten: {field: labels}}",
    "flatten.delimiter": "{flatten: {delimiter: _}}",
    "nest": "{nest: {into: http, fields: [method, status]}}",
    "nest.into": "{nest: {into: payload}}",
    "nest.fields": "{nest: {into: http, fields: [method, status]}}",
    "replace": "{replace: {path: {pattern: '[0-9]+', with: N}}}",
    "replace.pattern": "{replace: {path: {pattern: '[0-9]+', with: N}}}",
    "replace.with": "{replace: {name: {pattern: '^app-(.*)$', with: 'logs.\\1'}}}",
    "hash": "{hash: {field: email}}",
    "hash.field": "{hash: {field: [email, phone]}}",
    "hash.into": "{hash: {field: [user, order], into: id}}",
    "hash.algorithm": "{hash: {field: email, algorithm: sha512}}",
    "hash.secret": '{hash: {field: email, secret: "${cred:hash_secret}"}}',
    "mask": "{mask: {card: '\\b[0-9]{12}([0-9]{4})\\b'}}",
    "mask.pattern": "{mask: {card: {pattern: '[0-9]{16}'}}}",
    "mask.with": "{mask: {card: {pattern: '[0-9]{16}', with: CARD}}}",
    "sql": "{sql: \"SELECT *, upper(level) AS level_uc FROM records WHERE level <> 'DEBUG'\"}",
    "sql.query": '{sql: {query: "SELECT level, message FROM records", schema: "level string, message string"}}',
    "sql.schema": '{sql: {query: "SELECT * FROM records", schema: "ts timestamp, level string"}}',
    "sample": "{sample: 0.1}",
    "sample.rate": "{sample: {rate: 0.1}}",
    "sample.key": "{sample: {rate: 0.1, key: user}}",
}
"""Whole items of `transforms`."""
_CONDITIONS: Mapping[str, str] = {
    "": "{level: [DEBUG, TRACE]}",
    "any_of": "{level: {any_of: [DEBUG, TRACE]}}",
    "matches": '{path: {matches: "^/healthz"}}',
    "lt": "{status: {lt: 400}}",
    "le": "{status: {le: 399}}",
    "gt": "{took: {gt: 0.5}}",
    "ge": "{status: {ge: 500}}",
    "exists": "{user: {exists: false}}",
    "not": "{level: {not: DEBUG}}",
}
"""Matchers by the option that they are an example of."""
_TESTS: Mapping[str, str] = {
    "name": "name: an order",
    "input": "input: [one line, another line]",
    "input_file": "input_file: samples/a.log",
    "partial": "partial: true",
    "file": "file: {path: /var/log/shop.log}",
    "file.path": "file: {path: /var/log/shop.log}",
    "file.mtime": 'file: {mtime: "2026-11-21T05:00:00Z"}',
    "file.inode": "file: {inode: 7}",
    "file.owner": "file: {owner: www-data}",
    "file.group": "file: {group: adm}",
    "file.mode": 'file: {mode: "0640"}',
    "host": "host: web1",
    "read_time": 'read_time: "2026-11-21T05:00:00Z"',
    "expect": "expect: [{topic: logs, value: {status: 200}}]",
    "expect.topic": "expect: [{topic: logs.nginx}]",
    "expect.key": "expect: [{key: 10.0.0.1}]",
    "expect.value": "expect: [{value: {status: 200, path: /a}}]",
    "expect.headers": "expect: [{headers: {host: web1}}]",
    "expect.timestamp": 'expect: [{timestamp: "2026-11-21T05:00:00Z"}]',
    "expect.partition": "expect: [{partition: 0}]",
    "exact": "exact: true",
    "dead_letters": "dead_letters: [{stage: transform, step: convert}]",
    "dead_letters.stage": "dead_letters: [{stage: transform}]",
    "dead_letters.step": "dead_letters: [{step: convert}]",
    "dead_letters.reason": "dead_letters: [{reason: no whole number}]",
}
"""Options of a test; `_whole_test` adds those that every test needs."""


_REGISTRY = 'schema_registry: {url: "http://127.0.0.1:8081"'
_WITH_REGISTRY = ("avro", "json_schema", "protobuf")
_CONVERTING: Mapping[str, str] = {
    "type": "",
    "subject": "subject: orders-value",
    "subject_strategy": "subject_strategy: topic_record",
    "auto_register": "auto_register: true",
    "extra_fields": "extra_fields: drop",
    "validate": "validate: false",
    "message": "message: shop.Order",
}
"""Options of converters with schemas."""
_REGISTRIES: Mapping[str, str] = {
    "": "}",
    "url": "}",
    "ca_file": ", ca_file: /etc/copycat/ca.pem}",
    "basic_auth": ', basic_auth: {username: copycat, password: "${cred:registry_password}"}}',
}
EXAMPLES = {
    "name": "nginx-access",
    "renamed_from": "[nginx]",
    "source.include": "[/var/log/nginx/*access.log]",
    "source.exclude": '["*.gz"]',
    "source.start_at": '"2026-11-21T05:00:00Z"',
    "source.encoding": "latin-1",
    "source.line.delimiter": r'"\0"',
    "source": "{type: log_file, include: [/var/log/nginx/*access.log]}",
    "source.type": "log_file",
    "source.ignore_older": "2d",
    "source.multiline.start": r"'^\d{4}-'",
    "source.multiline.continues": r"'^\s'",
    "source.multiline.ends": "';$'",
    "source.multiline.field": "log",
    "source.multiline": "{preset: java}",
    "source.format.multiline.start": r"'^\d{4}-'",
    "source.format.multiline.continues": r"'^\s'",
    "source.format.multiline.ends": "';$'",
    "source.format.multiline.field": "log",
    "source.order_by.regex": r"'-(\d+)'",
    "source.symlink_roots": "[/mnt/logs]",
    "transforms": '[{drop_if: {message: {matches: "DEBUG"}}}]',
    "transforms.drop_if": '{message: {matches: "DEBUG"}}',
    "transforms.keep_if": '{message: {matches: "ERROR"}}',
    "tests": '[{input: "a line", expect: [{value: "a line"}]}]',
    "converters.key.type": "string",
    "converters.value": "bytes",
    "converters.key": "string",
    "converters.schema_registry": "{url: http://registry.example.test:8081}",
    "converters.schema_registry.url": "http://registry.example.test:8081",
    "converters.schema_registry.cert_file": "/etc/copycat/client.pem",
    "converters.schema_registry.key_file": "/etc/copycat/client.key",
    "converters.schema_registry.basic_auth": '{username: copycat, password: "${cred:registry_password}"}',
    "record": '{topic: logs.nginx, key: "{@file.name}"}',
    "record.topic": '"logs.{@file.name}"',
    "record.allowed_topics": "[logs.error, logs.info]",
    "record.key": '"{@file.name}"',
    "record.headers": '{host: "{@host}"}',
    "record.partition": "file",
    "delivery.ordering": "file",
    "sink": "{type: files, uri: s3://lake/orders/}",
    "sink.uri": "s3://lake/orders/",
    "sink.path": '"{@topic}/dt={@timestamp:%Y-%m-%d}"',
    "sink.format": "parquet",
    "sink.compression": "zstd",
    "sink.roll": "{records: 100000, age: 5m}",
    "sink.roll.bytes": "64MiB",
    "sink.roll.age": "5m",
    "sink.roll.idle": "1m",
    "errors.dlq": "{topic: logs.dlq}",
    "errors.dlq.topic": "logs.dlq",
    "kafka.bootstrap_servers": "[k1.example.test:9093, k2.example.test:9093]",
    "kafka.client": "{compression.type: zstd}",
    "kafka.security.username": "copycat",
    "kafka.security.password": '"${cred:kafka_password}"',
    "kafka.security.ca_file": "/etc/copycat/ca.pem",
    "kafka.security.mechanism": "SCRAM-SHA-512",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.security.cert_file": "/etc/copycat/client.pem",
    "kafka.security.key_file": "/etc/copycat/client.key",
    "kafka.security.key_password": '"${cred:key_password}"',
    "kafka.security.oauth.token_url": "https://login.example.test/token",
    "kafka.security.oauth.client_id": "copycat",
    "kafka.security.oauth.client_secret": '"${cred:kafka_secret}"',
    "kafka.security.oauth.scope": "kafka",
    "kafka.security.oauth.extensions": "{logicalCluster: lkc-1, identityPoolId: pool-7}",
    "kafka.security.oauth.resource": '"api://kafka"',
    "kafka.security.oauth.region": "eu-west-1",
    "kafka.security.oauth.role_arn": '"arn:aws:iam::123456789012:role/copycat"',
    "kafka.security.oauth.ca_file": "/etc/copycat/login-ca.pem",
    "kafka.security.oauth.assertion": "{file: /var/run/secrets/tokens/kafka}",
    "kafka.security.oauth.assertion.file": "/var/run/secrets/tokens/kafka",
    "kafka.security.oauth.assertion.key_file": "/etc/copycat/assertion.key",
    "kafka.create_topics": "{partitions: 3}",
    "kafka.create_topics.config": "{retention.ms: 604800000}",
    "spark.conf": "{spark.ui.enabled: false}",
    "agent_id": "lake",
    "delivery.positions": "local",
    "state_dir": "/var/lib/copycat",
    "api.listen": "127.0.0.1:9464",
    "api.connect": "{listen: 127.0.0.1:8083}",
    "api.connect.listen": "127.0.0.1:8083",
    "api.page": "{listen: 127.0.0.1:8090}",
    "api.page.listen": "127.0.0.1:8090",
    "api.socket": "/run/copycat/agent.sock",
}
"""Values that are better examples than those by type."""
EXAMPLES_OF = {
    ("datasource", "source.type"): "datasource",
    ("datasource", "source.class"): '"orders:Orders"',
    ("datasource", "source.options"): "{database: /var/lib/shop/shop.db}",
    ("objects", "source.type"): "objects",
    ("objects", "source.uri"): "s3://logs/app/?region=eu-central-1",
    ("objects", "source.pattern"): '"*.json.gz"',
    ("objects", "source.exclude"): '"*.tmp"',
    ("objects", "source.format"): "jsonl",
    ("objects", "source.min_age"): "30s",
    ("objects", "source.start_at"): "end",
    ("objects", "source.notify"): "{sqs: https://sqs.eu-central-1.amazonaws.com/1234/logs}",
    ("objects", "source.notify.sqs"): "https://sqs.eu-central-1.amazonaws.com/1234/logs",
    ("log_file", "source.cleanup"): "{policy: delete, after: 6h}",
    ("log_file", "source.cleanup.policy"): "delete",
    ("log_file", "source.cleanup.after"): "6h",
    ("objects", "source.cleanup"): "{policy: delete}",
    ("objects", "source.cleanup.policy"): "delete",
    ("objects", "source.cleanup.to"): "/done/",
    ("objects", "source.cleanup.tag"): "copycat=delivered",
    ("journald", "source.type"): "journald",
    ("journald", "source.units"): '[nginx.service, "app-*.service"]',
    ("journald", "source.priority"): "warning",
    ("journald", "source.match"): "[_TRANSPORT=kernel]",
    ("journald", "source.boot"): "current",
    ("journald", "source.start_at"): "end",
    ("journald", "source.directory"): "/var/log/journal/remote",
    ("journald", "source.namespace"): "shop",
    ("journald", "source.max_bytes"): "64MiB",
    ("kafka", "source.type"): "kafka",
    ("kafka", "source.topics"): '[orders, "orders-.*"]',
    ("kafka", "source.exclude"): '["orders-test.*"]',
    ("kafka", "source.kafka"): "{bootstrap_servers: [kafka1:9092]}",
    ("kafka", "source.start_at"): "end",
    ("kafka", "source.isolation"): "read_uncommitted",
    ("kafka", "source.group"): "orders-mirror",
    ("jdbc", "source.type"): "jdbc",
    ("jdbc", "source.url"): "jdbc:postgresql://db1/shop",
    ("jdbc", "source.user"): "copycat",
    ("jdbc", "source.password"): '"${cred:shop}"',
    ("jdbc", "source.driver"): "org.postgresql:postgresql:42.7.8",
    ("jdbc", "source.driver_class"): "org.postgresql.Driver",
    ("jdbc", "source.properties"): "{sslmode: verify-full}",
    ("jdbc", "source.tables"): '["public.*"]',
    ("jdbc", "source.exclude"): '["public.tmp_*"]',
    ("jdbc", "source.mode"): "bulk",
    ("jdbc", "source.columns"): "{incrementing: id, timestamp: updated_at}",
    ("jdbc", "source.key_field"): "_key",
    ("jdbc", "source.start_at"): "end",
    ("spool_dir", "source.type"): "spool_dir",
    ("spool_dir", "source.dir"): "/var/spool/in",
    ("spool_dir", "source.pattern"): '"orders-*.csv"',
    ("spool_dir", "source.exclude"): '"*.bak"',
    ("spool_dir", "source.format"): "csv",
    ("spool_dir", "source.ready"): "{min_age: 30s}",
    ("spool_dir", "source.ready.min_age"): "30s",
    ("spool_dir", "source.ready.done_file"): '"{name}.done"',
    ("spool_dir", "source.cleanup"): "{policy: delete}",
    ("spool_dir", "source.cleanup.policy"): "delete",
    ("spool_dir", "source.cleanup.to"): "/var/spool/done",
    ("spool_dir", "source.cleanup.failed_to"): "/var/spool/failed",
}
"""As `EXAMPLES`, for options of one source or format: (its type, key)."""
BESIDE = {
    "source.cleanup.to": "policy: move",
    "source.format.columns.start": "name: id, width: 8",
    "source.format.columns.type": "name: id, width: 8",
    "source.format.columns": "name: id",
    "source.cleanup.retain": "policy: move, to: /var/spool/done",
    "source.multiline.field": "preset: java, on_too_long: dlq",
    "source.multiline": "preset: java",
    "source.format.multiline.field": "preset: java, on_too_long: dlq",
    "source.format.multiline.max_lines": "preset: java",
    "source.format.multiline.max_bytes": "preset: java",
    "source.format.multiline.on_too_long": "preset: java",
    "source.symlink_roots": "follow_symlinks: true",
    "record.allowed_topics": 'topic: "logs.{level}"',
}
"""Options that an option, or those below it, need beside them."""
ALONE = frozenset(f"source.multiline.{name}" for name in ("start", "continues", "ends", "preset"))
"""Options that need nothing beside them, unlike others of their section."""


def written_example(key: str, kind: str = "") -> str:
    """Returns an example of an option of transforms, tests or converters with schemas, from the top of a definition; "" if there is none.

    `kind` is the type of the converter.
    """
    section, _, name = key.partition(".")
    if section == "converters":
        return _converting(name, kind)
    if section == "tests" and name in _TESTS:
        return f"tests: [{{{_whole_test(_TESTS[name])}}}]"
    item = _item(name) if section == "transforms" else ""
    return f"transforms: [{item}]" if item else ""


def _converting(name: str, kind: str) -> str:
    side, _, option = name.partition(".")
    if side == "schema_registry":
        rest = _REGISTRIES.get(option.partition(".")[0], "}")
        registry = _REGISTRY.replace("http:", "https:") if option == "ca_file" else _REGISTRY
        return f"converters: {{value: avro, {registry}{rest}}}"
    if kind not in _WITH_REGISTRY or option not in _CONVERTING:
        return ""
    parts = ", ".join(part for part in (f"type: {kind}", _CONVERTING[option]) if part)
    return f"converters: {{{side}: {{{parts}}}, {_REGISTRY}}}}}"


def _item(name: str) -> str:
    if name in _ITEMS:
        return _ITEMS[name]
    if match := re.fullmatch(r"(keep_if|drop_if|if)(\.not)?(?:\.(\w+))?", name):
        return _matching(match[1], match[3] or ("not" if match[2] else ""), negated=bool(match[2] and match[3]))
    action, _, option = name.partition(".")
    value = _OPTIONS.get(name) or (_PARSING.get(option) if action in _PARSERS else None)
    if value is None:
        return ""
    beside = [part for part in [_PARSERS[action]] if part and not part.startswith(f"{option}:")]
    return f"{{{action}: {{{', '.join([*beside, f'{option}: {value}'])}}}}}"


def _matching(action: str, shown: str, *, negated: bool) -> str:
    if shown not in _CONDITIONS:
        return ""
    matcher = _CONDITIONS[shown]
    if negated:
        field, _, condition = matcher[1:-1].partition(": ")
        matcher = f"{{{field}: {{not: {condition}}}}}"
    return f"{{drop_fields: [debug], if: {matcher}}}" if action == "if" else f"{{{action}: {matcher}}}"


def _whole_test(option: str) -> str:
    parts = [] if option.startswith("input") else ["input: a line"]
    expects = [] if option.startswith(("expect", "dead_letters")) else ["expect: [{topic: logs}]"]
    return ", ".join([*parts, option, *expects])


LEAST_OF_FILES = {"sink.type": "type: files", "sink.uri": "uri: s3://lake/orders/"}
"""Options that a sink of files requires, by key."""
LEAST_OF_SOURCES: dict[str, dict[str, str]] = {
    "spool_dir": {"source.type": "type: spool_dir", "source.dir": "dir: /var/spool/in"},
    "objects": {"source.type": "type: objects", "source.uri": "uri: s3://logs/app/"},
    "journald": {"source.type": "type: journald"},
    "kafka": {"source.type": "type: kafka", "source.topics": "topics: [orders]"},
    "jdbc": {
        "source.type": "type: jdbc",
        "source.url": "url: jdbc:postgresql://db1/shop",
        "source.tables": "tables: [public.orders]",
        "source.mode": "mode: incrementing",
    },
    "datasource": {"source.type": "type: datasource", "source.class": 'class: "orders:Orders"'},
}
"""Options that a source of this type requires, by key."""
