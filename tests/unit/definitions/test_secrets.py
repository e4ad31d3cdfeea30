"""A secret is used and never shown: not in a repr, a message, a quoted line, a dump or a report."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from copycat_agent.cli.check import check
from copycat_agent.definitions import LoadResult, load_agent, load_directory
from copycat_agent.definitions.secret_values import masked_lines, without_secret_values
from copycat_agent.display import is_secret_name, render
from copycat_agent.errors import DefinitionError
from copycat_agent.options import HIDDEN, AgentOptions, KafkaOptions, SecurityOptions, without_login
from tests.unit.definitions.conftest import GOOD, Load

CANARY = "c4n4ry-Zq7"

SASL = "protocol: SASL_SSL, mechanism: PLAIN, username: u"


def shown(loaded: LoadResult) -> str:
    """Everything that a person or a program is told of a load."""
    parts = [repr(loaded), str(loaded), repr(loaded.problems), *map(render, (*loaded.problems, *loaded.warnings))]
    for definition in loaded.definitions.values():
        parts += [repr(definition), str(definition), json.dumps(definition.masked()), definition.model_dump_json(include={"kafka"})]
    if loaded.problems:
        error = DefinitionError(loaded.problems)
        parts += [str(error), repr(error), str(error.args)]
    return "\n".join(parts)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The canary as a credential, as a file and as an environment variable."""
    (tmp_path / "kafka_password").write_text(CANARY + "\n")
    return {"CREDENTIALS_DIRECTORY": str(tmp_path), "PASSWORD": CANARY, "FILE": str(tmp_path / "kafka_password")}


PASSWORDS = [CANARY, f'"{CANARY}"', f"'{CANARY}'", "${cred:kafka_password}", "${file:FILE}", "${env:PASSWORD}", f"${{env:NO:-{CANARY}}}"]


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_is_loaded_whole_and_shown_nowhere(load: Load, environ: dict[str, str], password: str) -> None:
    text = password.replace("FILE", environ["FILE"])
    loaded = load(GOOD + f"kafka:\n  security:\n    {SASL.replace(', ', chr(10) + '    ')}\n    password: {text}\n", environ=environ)
    secret = loaded.definitions["app"].kafka.security.password
    assert secret is not None
    assert secret.get_secret_value() == CANARY
    assert CANARY not in shown(loaded)


BROKEN = [
    # a definition that does not load, each in a way that quotes or mentions the line of the secret
    f"kafka: {{security: {{{SASL}, password: {CANARY}, nonsense: 1}}}}\n",
    f"kafka: {{security: {{{SASL}, pasword: {CANARY}}}}}\n",
    f"kafka: {{security: {{{SASL}, password: [{CANARY}]}}}}\n",
    f"kafka: {{security: {{{SASL}, password: {{{CANARY}: 1}}}}}}\n",
    f"kafka: {{security: {{password: {CANARY}}}}}\n",
    f"kafka: {{client: {{sasl.password: {CANARY}}}}}\n",
    f"kafka: {{client: {{ssl.key.pem: {CANARY}}}}}\n",
    f"kafka: {{client: {{sasl.oauthbearer.config: {CANARY}}}}}\n",
    f"password: {CANARY}\n",
    f"? password\n: {CANARY}\n",
    f"password: !{CANARY}\n",
    f"password: *{CANARY}\n",
    f"password: &{CANARY} x\n",
    f"password: {CANARY}: x\n",
    f'password: "{CANARY}\n',
    f'password: "x\n{CANARY}\n',
    f"password: 'x\n\n  {CANARY}'\n  @\n",
    f"password: [{CANARY}\n",
    f"password:\n  {CANARY}: x: y\n",
    f"password: |\n  {CANARY}\n  x\n @\n",
    f"password: >-\n  {CANARY}\n\n  {CANARY}\n\tx\n",
    f"- password: {CANARY}\n",
    f"kafka: {{security: {{'password': {CANARY} @@ }}\n",
    f'kafka: {{security: {{"password":"{CANARY}" @@ }}\n',
    f"kafka:\n  security:\n    'password':'{CANARY}'\n",
    f'kafka:\n  - "password":"{CANARY}"\n',
    f"kafka: {{security: {{password: {CANARY}\n",
    f"client_secret: {CANARY}\x1b\n",
    f"client_secret:\t{CANARY}\n",
    f"nonsense: &s {CANARY}\nkafka: {{security: {{password: *s}}}}\n",
    f"nonsense: &s {CANARY}\nkafka: {{security: {{password: *s}}}}\nnonsense: *s\n",
    f"delivery: {{guarantee: &s {CANARY}}}\nkafka: {{security: {{password: *s}}}}\n",
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_definition_that_does_not_load_shows_no_secret(load: Load, text: str) -> None:
    loaded = load(GOOD + text)
    assert loaded.problems
    assert CANARY not in shown(loaded)


@pytest.mark.parametrize("reference", ["${cred:kafka_password}", "x-${cred:kafka_password}-y", "${file:FILE}"])
@pytest.mark.parametrize(
    "section",
    ["delivery: {guarantee: 'REF'}", "delivery: {linger: 'REF'}", "delivery: {tasks_max: 'REF'}", "enabled: 'REF'",
     "kafka: {client: {compression.type: 'REF'}}", "kafka: {bootstrap_servers: ['REF']}", "errors: {dlq: {topic: 'REF !'}}",
     "converters: {value: 'REF'}", "transforms: [{'x': 'REF'}]"],
)  # fmt: skip
def test_a_secret_in_an_option_that_is_wrong_is_not_repeated(load: Load, environ: dict[str, str], section: str, reference: str) -> None:
    loaded = load(GOOD + section.replace("REF", reference.replace("FILE", environ["FILE"])) + "\n", environ=environ)
    assert loaded.problems
    assert CANARY not in shown(loaded)


@pytest.mark.parametrize(
    "section",
    ["kafka: {client: {client.id: 'REF'}}", "kafka: {security: {protocol: SASL_SSL, mechanism: PLAIN, username: 'REF', password: p4ss}}",
     "kafka: {create_topics: {config: {a: 'REF'}}}"],
)  # fmt: skip
def test_a_secret_in_an_ordinary_option_is_masked_too(load: Load, environ: dict[str, str], section: str) -> None:
    loaded = load(GOOD + section.replace("REF", "${cred:kafka_password}") + "\n", environ=environ)
    assert not loaded.problems
    assert CANARY in str(loaded.definitions["app"].model_dump())
    assert CANARY not in shown(loaded).replace(loaded.definitions["app"].model_dump_json(include={"kafka"}), "")


SHOWN = [
    "name: 'REF'", "source: {type: log_file, include: ['/x', '/logs/REF']}", "source: {type: log_file, include: [/x], exclude: ['REF']}",
    "record: {topic: 'REF'}", "record: {topic: 'logs.REF'}", "record: {topic: a, allowed_topics: [a, 'REF']}",
    "errors: {dlq: {topic: 'REF'}}", "kafka: {bootstrap_servers: ['REF:1']}", "source: {type: kafka, topics: ['REF']}",
    "source: {type: kafka, topics: [a], kafka: {bootstrap_servers: ['REF:1']}}",
    "source: {type: spool_dir, dir: '/REF', format: lines, cleanup: {policy: delete}}",
    "source: {type: objects, uri: 's3://REF', format: lines}",
    "converters: {value: {type: avro}, schema_registry: {url: 'http://REF'}}",
]  # fmt: skip


def with_section(section: str) -> str:
    """GOOD with this section in the place of its own."""
    key = section.partition(":")[0]
    return "".join(line + "\n" for line in GOOD.splitlines() if line.partition(":")[0] != key) + section + "\n"


@pytest.mark.parametrize("reference", ["${cred:kafka_password}", "${file:FILE}", "${cred:missing}"])
@pytest.mark.parametrize("section", SHOWN)
@pytest.mark.parametrize("resolve_env", [True, False])
def test_a_secret_cannot_stand_where_values_are_logged(
    load: Load, environ: dict[str, str], section: str, reference: str, resolve_env: bool
) -> None:
    text = with_section(section.replace("REF", reference.replace("FILE", environ["FILE"])))
    loaded = load(text, environ=environ, resolve_env=resolve_env)
    assert [(each.code, "${env:NAME}" in each.hint) for each in loaded.problems] == [("secret-place", True)]
    assert not loaded.definitions
    assert CANARY not in shown(loaded)


@pytest.mark.parametrize("section", SHOWN)
def test_the_environment_may_stand_where_values_are_logged(load: Load, section: str) -> None:
    loaded = load(with_section(section.replace("REF", "${env:V}")), environ={"V": "value"})
    assert not loaded.problems


@pytest.mark.parametrize("field", ["uri: 's3://x/REF/'", "uri: 's3://x/y/', path: 'REF'"])
def test_a_secret_cannot_stand_in_the_address_of_files(load: Load, environ: dict[str, str], field: str) -> None:
    text = f"name: app\nsource: {{type: kafka, topics: [t]}}\nsink: {{type: files, {field}}}\n"
    loaded = load(text.replace("REF", "${cred:kafka_password}"), environ=environ)
    assert [each.code for each in loaded.problems] == ["secret-place"]
    assert not load(text.replace("REF", "${env:V}"), environ={"V": "value"}).problems


def test_a_secret_cannot_be_the_agents_broker_address(tmp_path: Path, environ: dict[str, str]) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("kafka: {bootstrap_servers: ['${cred:kafka_password}:1']}\n")
    with pytest.raises(DefinitionError) as caught:
        load_agent(config, environ=environ)
    assert [problem.code for problem in caught.value.problems] == ["secret-place"]


@pytest.mark.parametrize("address", ["sasl://u:PASS@h:1", "//:PASS@h", "sasl://u@corp:PASS/@@h:1", "sasl://u:PASS word@h:1"])
def test_a_login_in_an_address_is_not_quoted(load: Load, address: str) -> None:
    text = address.replace("PASS", CANARY)
    loaded = load(GOOD + f'kafka: {{bootstrap_servers: ["{text}"]}}\n', GOOD + f'"{text}": 1\n')
    assert {problem.code for problem in loaded.problems} >= {"address", "unknown-key"}
    assert CANARY not in shown(loaded)
    with pytest.raises(DefinitionError) as caught:
        load_agent(None, {"kafka.bootstrap_servers": (text,)})
    assert CANARY not in str(caught.value)
    assert HIDDEN in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "sqlserver://h:1433;user=sa;password=PASS", "sqlserver://h;password = {a;PASS};user=sa", "db2://h:50000/d:user=u;password=PASS;",
        "mysql://address=(host=h)(user=u)(password=PASS)/d", "mysql://(host=h,password=a,PASS)/d", "mysql://h/d?password1=PASS",
        "oracle:thin:scott/PASS@//h:1521/d", "oracle:thin:scott/a@PASS@h:1521:d", "redshift:iam://h/d;AccessKeyID=a;SecretAccessKey=PASS",
        "mysql://u:PASS@h/d",
    ],
)  # fmt: skip
def test_a_password_in_the_address_of_a_database_is_not_shown(load: Load, address: str) -> None:
    url = f"jdbc:{address.replace('PASS', CANARY)}"
    assert CANARY not in without_login(url)
    for source in (f'{{type: jdbc, url: "{url}", tables: [a], mode: bulk}}', f"\n  type: jdbc\n  mode: bulk\n  tables: [a]\n  url: {url}"):
        loaded = load(f"name: app\nsource: {source}\nrecord: {{topic: t}}\n")
        assert ["holds a password" in problem.text for problem in loaded.problems] == [True]
        assert CANARY not in shown(loaded)
    options = load(f'name: app\nsource: {{type: datasource, class: "a:B", options: {{u: "{url}"}}}}\nrecord: {{topic: t}}\n')
    assert CANARY not in json.dumps(options.definitions["app"].masked())


@pytest.mark.parametrize("url", ["jdbc:oracle:thin:@//h:1521/d", "jdbc:postgresql://h/d?sslmode=verify-full", "jdbc:sqlserver://h;user=u"])
def test_the_address_of_a_database_without_a_password_is_shown(url: str) -> None:
    assert without_login(url) == url


@pytest.mark.parametrize("text", ["jdbc:", "jdbc:secret", "jdbc:oracle:thin:"])
def test_a_long_text_of_addresses_is_masked_in_time(text: str) -> None:
    assert without_login(text * 100_000) == text * 100_000


def test_a_login_before_a_broker_is_not_quoted(load: Load) -> None:
    assert CANARY not in shown(load(GOOD + f"kafka: {{bootstrap_servers: ['u:{CANARY}@k1.example.test:9092']}}\n"))


def test_a_login_in_an_address_that_loads_is_masked(load: Load) -> None:
    oauth = f"{{token_url: 'https://u:{CANARY}@example.test/t', client_id: a, client_secret: b}}"
    loaded = load(GOOD + f"kafka: {{security: {{protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: {oauth}}}}}\n")
    security = loaded.definitions["app"].masked()["kafka"]["security"]
    assert security["oauth"]["token_url"] == f"https://{HIDDEN}@example.test/t"
    assert CANARY not in json.dumps(loaded.definitions["app"].masked())


def test_secrets_of_the_agent_stay_masked_under_a_definition(load: Load, environ: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(
        f"kafka:\n  client: {{client.id: '${{cred:kafka_password}}'}}\n  security: {{{SASL}, password: '${{cred:kafka_password}}'}}\n"
    )
    agent = load_agent(config, environ=environ)
    assert CANARY not in repr(agent) + str(agent) + json.dumps(agent.masked())
    loaded = load(GOOD + "kafka: {client: {linger.ms: 5}, security: {username: me}}\n", agent=agent)
    kafka = loaded.definitions["app"].kafka
    assert kafka.client == {"client.id": CANARY, "linger.ms": "5"}
    assert CANARY not in repr(kafka) + json.dumps(kafka.masked())


def test_masking_survives_pickling(load: Load, environ: dict[str, str]) -> None:
    definition = load(GOOD + "kafka: {client: {client.id: '${cred:kafka_password}'}}\n", environ=environ).definitions["app"]
    copy = pickle.loads(pickle.dumps(definition))
    assert copy == definition
    assert CANARY not in repr(copy)


@pytest.mark.parametrize("output", ["text", "json"])
def test_the_check_command_shows_no_secret(directory: Path, output: str) -> None:
    (directory / "a.yaml").write_text(GOOD + f"kafka: {{security: {{{SASL}, password: {CANARY}}}, client: {{linger.ms: x}}}}\n")
    (directory / "b.yaml").write_text(GOOD + f"password: {CANARY}: x\n")
    (directory.parent / "agent.yaml").write_text(f"kafka: {{security: {{password: {CANARY}}}}}\n")
    app = Typer()
    app.command()(check)
    result = CliRunner().invoke(app, [str(directory), "--format", output])
    assert result.exit_code == 78
    assert HIDDEN in result.output
    assert CANARY not in result.output


def test_spark_is_given_no_secret(tmp_path: Path, environ: dict[str, str]) -> None:
    config = tmp_path / "agent.yaml"
    for conf in ("{spark.x: '${cred:kafka_password}'}", "{spark.ssl.keyPassword: x}", "{spark.authenticate.secret: x}"):
        config.write_text(f"spark: {{conf: {conf}}}\n")
        with pytest.raises(DefinitionError) as caught:
            load_agent(config, environ=environ)
        assert [problem.code for problem in caught.value.problems] == ["secret-in-public"]
        assert CANARY not in str(caught.value)


def test_spark_is_given_the_secret_of_its_own_channel_from_where_others_do_not_read(tmp_path: Path, environ: dict[str, str]) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("spark: {conf: {spark.authenticate.secret: '${cred:kafka_password}'}}\n")
    options = load_agent(config, environ=environ)
    assert options.spark.conf["spark.authenticate.secret"] == CANARY
    assert CANARY not in str(options.masked())


def test_what_is_no_secret_is_shown() -> None:
    text = "name: app\nkafka:\n  security:\n    password: x\n    username: me\n  client: {a: b}"
    assert masked_lines(text) == ("name: app", "kafka:", "  security:", f"    password: {HIDDEN}", "    username: me", "  client: {a: b}")
    reference = 'password: "${cred:kafka_password}"  # from systemd'
    assert masked_lines(reference) == (reference,)


@pytest.mark.parametrize(
    ("text", "shown_lines"),
    [
        ('password: "x\nsecret\nend"\nname: a', [f"password: {HIDDEN}", HIDDEN, HIDDEN, "name: a"]),
        ("a: &s secret\npassword: *s\nb: &t x", [f"a: &s {HIDDEN}", f"password: {HIDDEN}", "b: &t x"]),
        ("password: |\n  secret\n\n  more\nname: a", [f"password: {HIDDEN}", HIDDEN, "", HIDDEN, "name: a"]),
        ("k: {user: me, password: secret, a: b}\nname: a", [f"k: {{user: me, password: {HIDDEN}", "name: a"]),
        ("- password: secret\n  user: me", [f"- password: {HIDDEN}", "  user: me"]),
        ("x: " + "y" * 500 + "\nname: a", [HIDDEN, "name: a"]),
    ],
    ids=range(6),
)
def test_a_secret_is_hidden_as_far_as_it_reaches(text: str, shown_lines: list[str]) -> None:
    assert list(masked_lines(text)) == shown_lines


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("a: {password: s3cret, b: 1}\nc: 1\n", 'a: {password: "********", b: 1}\nc: 1\n'),
        ("a:\n  password:\n    s3cret\n    more\n\n  b: 1  # one\n", 'a:\n  password:\n    "********"\n\n  b: 1  # one\n'),
        ("a:\n  password: |-\n    s3cret\n  # two\n  b: 1\n", 'a:\n  password: "********"\n  # two\n  b: 1\n'),
        ("password: >\n  s3cret", 'password: "********"'),
        ('password: "s3cret\n  more"  # three\nb: 1\n', 'password: "********"  # three\nb: 1\n'),
        ("token: [s3cret, {a: s3cret}]\n", 'token: ["********", {a: "********"}]\n'),
        ('{url: "jdbc:x://u:s3cret@h/x", key: "{@host}"}\n', '{url: "jdbc:x://********@h/x", key: "{@host}"}\n'),
        ("b: &s s3cret\npassword: *s\n", 'b: "********"\npassword: *s\n'),
        ("b: 1 # password: s3cret\n", "b: 1 # password: ********\n"),
        ("a: {password: s3cret @\nb: 1", "a: {password: ********\nb: 1"),
    ],
    ids=range(10),
)
def test_a_definition_without_its_secrets_has_the_same_form(text: str, without: str) -> None:
    assert without_secret_values(text) == without


def test_a_literal_secret_is_hidden_wherever_else_it_stands(load: Load) -> None:
    loaded = load(GOOD + f"kafka: {{security: {{{SASL}, password: {CANARY}}}}}\nerrors: {{dlq: {{topic: '{CANARY} !'}}}}\n")
    assert [problem.line for problem in loaded.problems] == [5]
    assert CANARY not in shown(loaded)


def test_password_like_options_of_a_data_source_are_hidden_and_the_others_are_shown(load: Load) -> None:
    options = f"{{user: u, password: {CANARY}, apiKey: {CANARY}, url: 'jdbc:x://u:{CANARY}@h/x', table: orders}}"
    loaded = load(f"name: app\nsource: {{type: datasource, class: 'a:B', options: {options}}}\nrecord: {{topic: t}}\n")
    source = loaded.definitions["app"].source
    assert source.masked()["options"] == {
        "user": "u", "password": HIDDEN, "apiKey": HIDDEN, "url": f"jdbc:x://{HIDDEN}@h/x", "table": "orders",
    }  # fmt: skip
    assert source.options["password"] == CANARY  # type: ignore[attr-defined]
    assert CANARY not in shown(loaded)


@pytest.mark.parametrize("name", ["password", "key_password", "client_secret", "sasl.password", "ssl.key.pem", "pasword", "token"])
def test_names_of_secrets_are_known_even_misspelt(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["username", "token_url", "key_file", "key", "topic", "include", "partition", "record", "ssl.ca.location"])
def test_ordinary_names_are_not_taken_for_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_two_loads_are_equal_unless_a_secret_differs(directory: Path) -> None:
    (directory / "a.yaml").write_text(GOOD + f"kafka: {{security: {{{SASL}, password: '${{env:P}}'}}}}\n")
    one, same, other = (load_directory(directory, AgentOptions(), environ={"P": secret}).definitions["app"] for secret in ("a", "a", "b"))
    assert one == same
    assert one != other
    assert isinstance(one.kafka, KafkaOptions)
    assert isinstance(one.kafka.security, SecurityOptions)
