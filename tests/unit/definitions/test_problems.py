"""What is wrong is told with its code, its place and a next step; all of it at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copycat_agent.definitions import load_file
from copycat_agent.definitions.yaml_tree import DEPTH_MAX
from copycat_agent.display import render
from copycat_agent.options import AgentOptions
from tests.rig.examples import examples
from tests.unit.definitions.conftest import GOOD, Load

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9))

YAML = [
    # what is wrong with the text, before it means anything
    ("", 0, 0, "empty", ""),
    ("# only a comment\n", 0, 0, "empty", ""),
    ("- a\n", 1, 1, "wrong-type", "name: nginx-access"),
    ("name: app\nname: app\n", 2, 1, "duplicate-key", "keep one"),
    ("source:\n  type: log_file\n  type: log_file\n", 3, 3, "duplicate-key", "keep one"),
    ("name: app\n\tenabled: true\n", 2, 1, "tab", "\\t"),
    ("name:\tapp\n", 1, 6, "tab", "spaces"),
    ("name: !!python/object/apply:os.system [id]\n", 1, 7, "tag", "quote"),
    ("name: !secret x\n", 1, 7, "tag", "quote"),
    ("name: app\n---\nname: two\n", 2, 1, "several-documents", "one connector per file"),
    ("name: *nobody\n", 1, 7, "alias", "quote"),
    ("name: &a [*a]\n", 1, 11, "alias", "quote"),
    (BOMB, 5, 8, "too-many-nodes", "fewer aliases"),
    ("name: " + "[" * 3000, 1, 6 + DEPTH_MAX, "too-deep", ""),
    ("? [a, b]\n: c\n", 1, 3, "key-not-text", "quote"),
    ("name: a: b\n", 1, 8, "yaml-syntax", "quote a text that contains ': '"),
    ("name: @app\n", 1, 7, "yaml-syntax", "quote a text that starts with"),
    ("\ufeffname: app\n", 1, 1, "byte-order-mark", "without BOM"),
    (b"name: app\nrecord: \xff\n", 2, 9, "not-utf8", "UTF-8"),
    ("name: a\x1bb\n", 1, 8, "control-character", "double quotes"),
    ("name: a\u2028b\n", 1, 8, "control-character", "double quotes"),
]

OPTIONS = [
    # what is wrong with an option, in line 4 of a definition that is good without it
    ("delivry: {}\n", 4, 1, "unknown-key", "did you mean delivery?"),
    ("topic: x\n", 4, 1, "unknown-key", "it belongs under record"),
    ("delivery: {tasks: 2}\n", 4, 12, "unknown-key", "did you mean tasks_max?"),
    ("delivery: {linger: 5}\n", 4, 20, "bad-value", ""),
    ("delivery: {linger: 5.0}\n", 4, 20, "bad-value", ""),
    ("delivery: {linger: 2m}\n", 4, 20, "bad-value", "Pause between rounds"),
    ("delivery: {max_batch_bytes: 1024}\n", 4, 29, "bad-value", ""),
    ('delivery: {tasks_max: "2"}\n', 4, 23, "wrong-type", "without quotes"),
    ("delivery: {tasks_max: 010}\n", 4, 23, "wrong-type", "without quotes"),
    ("delivery: {tasks_max: 2.0}\n", 4, 23, "wrong-type", "without quotes"),
    ("delivery: {tasks_max: true}\n", 4, 23, "wrong-type", "without quotes"),
    ("delivery: {guarantee: at_lest_once}\n", 4, 23, "bad-value", "did you mean at_least_once?"),
    ("enabled: yes\n", 4, 10, "wrong-type", "only true and false are booleans"),
    ('enabled: "true"\n', 4, 10, "wrong-type", "only true and false are booleans"),
    ("enabled: 1\n", 4, 10, "wrong-type", "only true and false are booleans"),
    ("delivery:\n", 4, 1, "no-value", "delete the key"),
    ("delivery: [a]\n", 4, 11, "wrong-type", "{key: value}"),
    ("errors: {dlq: {}}\n", 4, 10, "missing-key", "Dead-letter topic"),
    ("errors: {dlq: {topic: a/b}}\n", 4, 23, "bad-value", "Dead-letter topic"),
    ("errors: {dlq: {topic: ..}}\n", 4, 23, "topic", "1 to 249"),
    ("converters: {value: jsn}\n", 4, 21, "unknown-type", "did you mean json?"),
    ("converters: {value: {type: jsn}}\n", 4, 28, "unknown-type", "did you mean json?"),
    ("converters: {value: {}}\n", 4, 14, "missing-key", "bytes, string, json"),
    ("converters: {vlue: json}\n", 4, 14, "unknown-key", "did you mean value?"),
    ("converters: {value: {type: json, indent: 2}}\n", 4, 34, "unknown-key", "known here: type"),
    ("transforms: [{no_such: 1}]\n", 4, 15, "unknown-type", ""),
    ("transforms: [{dropif: {a: 1}}]\n", 4, 15, "unknown-type", "did you mean drop_if?"),
    ("transforms: [{drop_if: {a: 1}, keep_if: {b: 2}}]\n", 4, 32, "several-actions", "a dash of its own"),
    ("transforms: [drop_if]\n", 4, 14, "wrong-type", "known are"),
    ("transforms: [{drop_if: {a: {macthes: x}}}]\n", 4, 29, "unknown-key", "did you mean matches?"),
    ("transforms: [{drop_if: {a: {matches: '('}}}]\n", 4, 28, "bad-value", ""),
    ("transforms: [{drop_if: {a: {ge: '5'}}}]\n", 4, 33, "wrong-type", "|"),
    ("transforms: [{drop_if: {a: 1}, when: x}]\n", 4, 32, "unknown-key", ""),
    ("transforms: {a: b}\n", 4, 13, "wrong-type", "one, two"),
    ("kafka: {bootstrap_servers: [k1]}\n", 4, 29, "address", "9092"),
    ('kafka: {bootstrap_servers: ["k1:0"]}\n', 4, 29, "address", "9092"),
    ('kafka: {bootstrap_servers: ["::1:9092"]}\n', 4, 29, "address", "[::1]:9092"),
    ("kafka: {bootstrap_servers: k1:9092}\n", 4, 28, "wrong-type", "one, two"),
    ("kafka: {client: {linger.ms: -1}}\n", 4, 29, "kafka-client", ""),
    ("kafka: {client: {lingr.ms: 5}}\n", 4, 18, "kafka-client", "did you mean linger.ms?"),
    ("kafka: {client: {compression.type: brotli}}\n", 4, 36, "kafka-client", ""),
    ("kafka: {client: {acks: 1}}\n", 4, 18, "kafka-client", "delivery.guarantee"),
    ("kafka: {client: {group.id: x}}\n", 4, 18, "kafka-client", "consumers"),
    ("kafka: {client: {fetch.max.bytes: 9}}\n", 4, 18, "kafka-client", "source.kafka.client"),
    ("kafka: {client: {plugin.library.paths: x.so}}\n", 4, 18, "kafka-client", "loads code"),
    ("kafka: {security: {mechanism: PLAIN}}\n", 4, 31, "security", "SASL_SSL"),
    ("kafka: {security: {protocol: SASL_SSL}}\n", 4, 30, "security", "mechanism"),
    ("kafka: {security: {protocol: SASL_SSL, mechanism: OAUTHBEARER}}\n", 4, 51, "security", "oauth: {"),
    ("kafka: {security: {protocol: SASL_SSL, mechanism: PLAIN, username: u}}\n", 4, 51, "security", "${cred:NAME}"),
    ("kafka: {security: {ca_file: /ca.pem}}\n", 4, 29, "security", "protocol: SSL"),
    ("kafka: {security: {protocol: SSL, cert_file: /c.pem}}\n", 4, 46, "security", "key_file"),
]

READS = "source: {type: kafka, topics: [a], kafka: {bootstrap_servers: [k1:9092], %s}}\nrecord: {topic: t}"
SECTIONS = [
    # a section of its own, after the name in line 1
    (READS.replace("k1:9092", "k1") % "client: {}", 2, 64, "address", "9092"),
    (READS % "client: {plugin.library.paths: x.so}", 2, 83, "kafka-client", "loads code"),
    (READS % "client: {fetch.wait.max.ms: 60000}", 2, 102, "kafka-client", ""),
    (READS % "client: {fetch.max.byte: 1}", 2, 83, "kafka-client", "did you mean fetch.max.bytes?"),
    (READS % "client: {group.id: x}", 2, 83, "kafka-client", "use source.group"),
    (READS % "client: {enable.auto.commit: true}", 2, 83, "kafka-client", "positions itself"),
    (READS % "security: {protocol: SASL_SSL}", 2, 95, "security", "mechanism"),
    ("source: {type: logfile, include: [/a]}\nrecord: {topic: t}", 2, 16, "unknown-type", "did you mean log_file?"),
    ("source: {include: [/a]}\nrecord: {topic: t}", 2, 1, "missing-key", "log_file"),
    ("source: {type: log_file}\nrecord: {topic: t}", 2, 1, "missing-key", ""),
    ("source: {type: log_file, include: []}\nrecord: {topic: t}", 2, 35, "bad-value", ""),
    ("source: {type: log_file, include: [var/log/a]}\nrecord: {topic: t}", 2, 36, "bad-value", "start it with /"),
    ("source: {type: log_file, include: [/a], symlink_roots: [/b]}\nrecord: {topic: t}", 2, 41, "bad-value", "follow_symlinks: true"),
    (
        "source: {type: log_file, include: [/a], follow_symlinks: true, symlink_roots: [b]}\nrecord: {topic: t}",
        *(2, 80, "bad-value", "start it with /"),
    ),
    ("source: {type: log_file, include: [/a], start_at: now}\nrecord: {topic: t}", 2, 51, "bad-value", "2026-11-21T05:00:00Z"),
    ("source: {type: log_file, include: [/a], start_at: 2026-11-21}\nrecord: {topic: t}", 2, 51, "bad-value", "2026-11-21T05:00:00Z"),
    ("source: {type: log_file, include: [/a], encoding: base64}\nrecord: {topic: t}", 2, 51, "encoding", "cp1252"),
    (
        'source: {type: log_file, include: [/a], encoding: shift_jis, line: {delimiter: "|"}}\nrecord: {topic: t}',
        *(2, 51, "encoding", "line.delimiter"),
    ),
    (
        "source: {type: log_file, include: [/a], encoding: iso2022_jp, line: {on_too_long: split}}\nrecord: {topic: t}",
        *(2, 51, "encoding", "truncate, dlq or drop"),
    ),
    ("source: {type: log_file, include: [/a], line: {max_bytes: 5}}\nrecord: {topic: t}", 2, 59, "bad-value", ""),
    ("source: {type: log_file, include: [/a], multiline: {start: '('}}\nrecord: {topic: t}", 2, 60, "bad-value", ""),
    ("source: {type: log_file, include: [/a], multiline: {timeout: 1s}}\nrecord: {topic: t}", 2, 52, "bad-value", ""),
    ("source: {type: log_file, include: [/a], multiline: {preset: jva}}\nrecord: {topic: t}", 2, 61, "bad-value", "did you mean java?"),
    ("source: {type: log_file, include: [/a]}", 1, 1, "missing-key", ""),
    ("source: {type: log_file, include: [/a]}\nrecord: {topic: a b}", 3, 17, "topic", "1 to 249"),
    ('source: {type: log_file, include: [/a]}\nrecord: {topic: "{client}"}', 3, 17, "template", "allowed_topics"),
    ('source: {type: log_file, include: [/a]}\nrecord: {topic: "a/{client}"}', 3, 17, "topic", "1 to 249"),
    ('source: {type: log_file, include: [/a]}\nrecord: {topic: "logs.{"}', 3, 17, "template", ""),
    ('source: {type: log_file, include: [/a]}\nrecord: {topic: t, headers: {h: "{@nothing}"}}', 3, 33, "template", ""),
    ("source: {type: log_file, include: [/a]}\nrecord: {topic: t, partition: -1}", 3, 31, "bad-value", "key, sticky, file"),
    ("source: {type: log_file, include: [/a]}\nrecord: {topic: t, partition: any}", 3, 31, "bad-value", ""),
    ("source: {type: log_file, include: [/a]}\nrecord: {topic: t, allowed_topics: [u]}", 3, 17, "topic", "add it there"),
]

CASES = [
    *YAML,
    *((GOOD + text, *rest) for text, *rest in OPTIONS),
    *(("name: app\n" + text + "\n", *rest) for text, *rest in SECTIONS),
]


@pytest.mark.parametrize(("text", "line", "column", "code", "hint"), CASES, ids=[str(case[0])[-40:] for case in CASES])
def test_each_mistake_is_one_problem_at_its_place_with_a_next_step(
    load: Load, text: str | bytes, line: int, column: int, code: str, hint: str
) -> None:
    loaded = load(text)
    assert [(each.line, each.column, each.code) for each in loaded.problems] == [(line, column, code)]
    assert any(words in loaded.problems[0].hint for words in hint.split("|"))
    assert loaded.definitions == {}


def test_a_problem_is_rendered_with_its_line_a_caret_and_the_hint(load: Load) -> None:
    loaded = load(GOOD + "delivery: {tasks: 2}\n")
    path = loaded.problems[0].path
    assert render(loaded.problems[0]) == (
        f"{path}:4:12: error[unknown-key] unknown key 'tasks'\n"
        "4 | delivery: {tasks: 2}\n  |            ^\n  hint: did you mean tasks_max?"
    )


def test_color_adds_only_escape_sequences(load: Load) -> None:
    problem = load(GOOD + "delivery: {tasks: 2}\n").problems[0]
    colored = render(problem, color=True)
    for code in ("\x1b[1m", "\x1b[31m", "\x1b[36m", "\x1b[0m"):
        assert code in colored
        colored = colored.replace(code, "")
    assert colored == render(problem)


def test_every_problem_of_every_file_is_told_at_once(load: Load) -> None:
    loaded = load(
        GOOD + "enabled: no\ndelivery: {linger: 5, tasks_max: 0}\nkafka: {client: {acks: 1}, security: {protocol: TLS}}\n", "nam: x\n"
    )
    assert [(Path(each.path).name, each.line, each.code) for each in loaded.problems] == [
        ("a.yaml", 4, "wrong-type"), ("a.yaml", 5, "bad-value"), ("a.yaml", 5, "bad-value"), ("a.yaml", 6, "kafka-client"),
        ("a.yaml", 6, "bad-value"), ("b.yaml", 1, "unknown-key"), ("b.yaml", 1, "missing-key"), ("b.yaml", 1, "missing-key"),
        ("b.yaml", 1, "missing-key"),
    ]  # fmt: skip


def test_thousands_of_mistakes_are_told_in_part(load: Load) -> None:
    loaded = load(GOOD + "".join(f"passkey{number}: 1\n" for number in range(4000)))
    assert loaded.problems[-1].text == "and 3950 more problems in this file"


@pytest.mark.parametrize(
    "text",
    ["[" * 10**6, "- " * 500_000, "{" * 10**6, "? " * 500_000, "a: " + "x" * 10**6, "#" * 10**6, '"' + "\\" * 10**6, "'" * 10**6,
     "- a\n" * 250_000, "&a " * 300_000, "[a: " * 200_000, "\n" * 10**6, "password: |\n" + " x\n" * 300_000, BOMB,
     "".join(f"p{i}: 1\n" for i in range(80_000)), "{" + ",".join(f"p{i}: 1" for i in range(80_000)) + "}"],
    ids=range(16),
)  # fmt: skip
def test_no_text_of_a_megabyte_takes_long(load: Load, text: str) -> None:
    started = time.process_time()
    assert load(text[: 2**20]).problems
    assert time.process_time() - started < 10


def test_a_file_that_is_too_large_is_refused_unread(load: Load, directory: Path) -> None:
    with (directory / "a.yaml").open("wb") as file:
        file.truncate(2**40)
    assert [each.code for each in load().problems] == ["unreadable"]


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_arbitrary_bytes_yield_problems_and_nothing_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    loaded = load_file(path, AgentOptions(), environ={})
    assert loaded.problems
    assert all(line.isprintable() for problem in loaded.problems for line in render(problem).split("\n"))


_SCALARS = st.sampled_from(
    ["", "~", "5", "5s", "1.5", "true", "yes", "log_file", "'x'", "${env:A}", "${", "[]", "{}", "[a, [b]]", "{type: json}",
     "{a: {b: c}}", "*a"]
)  # fmt: skip
_KEYS = st.sampled_from(
    ["name", "source", "record", "topic", "type", "include", "transforms", "kafka", "client", "security", "converters", "value", "errors",
     "dlq", "partition", "headers", "password", "linger.ms", "enabled", "delivery", "linger", "nonsense"]
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=st.recursive(_SCALARS, lambda inner: st.dictionaries(_KEYS, inner, max_size=6), max_leaves=20))
def test_anything_in_any_place_yields_problems_and_nothing_else(tmp_path: Path, tree: str | dict[str, object]) -> None:
    def flow(node: object) -> str:
        return "{" + ", ".join(f"{key}: {flow(value)}" for key, value in node.items()) + "}" if isinstance(node, dict) else str(node)

    path = tmp_path / "x.yaml"
    path.write_text(flow(tree))
    assert load_file(path, AgentOptions(), environ={}).problems
