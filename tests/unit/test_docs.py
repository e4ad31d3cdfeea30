"""The pages for people say what is there: every command, option, link, definition, metric and message that they name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import typer

from copycat_agent.cli.main import app
from copycat_agent.definitions import load_agent, load_file
from copycat_agent.definitions.models import definition_schema
from copycat_agent.definitions.yaml_tree import parse
from copycat_agent.metrics.families import FAMILIES
from copycat_agent.options import AgentOptions
from copycat_agent.transforms import TRANSFORMS
from copycat_agent.worker import State
from tests.rig.secured import make_authority
from tests.unit.definitions.test_schema import data

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
GENERATED = ROOT / "docs/definitions.md"
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CALL = re.compile(r"(?:^|\$ |/|\(|sudo |-u copycat )copycat +([a-z].*)")
OPTION = re.compile(r"(?:^|\s|\[)(--?[a-z][a-z-]*)")
SECTIONS = ("record", "delivery", "errors", "limits", "kafka", "converters", "spark", "api", "log", "line")
"""Of definitions and agent.yaml."""
SPARKS_OWN = (
    "spark.archives",
    "spark.authenticate",
    "spark.cores.",
    "spark.driver.",
    "spark.executor.",
    "spark.network.",
    "spark.pyspark.",
    "spark.speculation",
    "spark.ssl.",
)
"""What stands under `spark.conf`."""
FOREIGN = {
    "SSL connection closed by peer: connecting to a PLAINTEXT broker listener?", "Failed to resolve", "Name or service not known",
    "Connection refused", "Local: Message timed out", "Topic authorization failed", "Unknown partition", "certificate",
    "Message size too large", "Broker", "Permission denied", "Too many open files",
}  # fmt: skip
"""What the operating system and librdkafka say, as seen with the real ones."""

SCHEMAS = "/etc/copycat/schemas"
"""Where pages keep schema files."""
DEFAULTS = {
    "name": "app", "source": "{type: log_file, include: [/var/log/app.log]}", "transforms": "[{json: {}}]", "record": "{topic: logs}",
    "errors": "{dlq: {topic: dlq}}",
}  # fmt: skip
"""What a piece of a definition lacks."""
STEP = rf"(?:{'|'.join(TRANSFORMS.built_in)}): \S"
CREDENTIALS = ("registry_password", "kafka_password", "pepper")

VARYING = re.compile(
    r"\.\.\.|: |; |\(mode 0777\)|\(pid|\(schema| 17 |bytes 57 to 3058|stage \w+|transforms\[\d\] \w+|'user'|'shout'|copycat-shout 1.0"
    r"|/agent\.sock|/offsets\.db"
)
"""What differs from case to case in a message as a page quotes it; where its parts meet, too."""


class Call(NamedTuple):
    """A command as a page writes it; `text` is what comes after `copycat`."""

    page: str
    text: str


def content(page: Path) -> str:
    return page.read_text("utf-8")


def prose(page: Path) -> str:
    return FENCE.sub("", content(page))


def blocks(page: Path, language: str) -> Iterator[str]:
    """Fenced blocks of a language, "" for none, without their fence's indentation."""
    for fence in FENCE.finditer(content(page)):
        if fence["language"] == language:
            yield "".join(line.removeprefix(fence["indent"]) for line in fence["body"].splitlines(keepends=True))


def quoted(page: Path) -> list[str]:
    """What stands in backticks in running text and tables."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def calls_of(page: Path) -> Iterator[Call]:
    lines = [*quoted(page), *(line for block in blocks(page, "") for line in block.splitlines())]
    for line in lines:
        for text in CALL.findall(line):
            yield Call(page.name, re.split(r"\s#|[;&)]|\s\|\s|\s2?>", text.replace(r"\|", "|"))[0].strip())


@cache
def command(name: str, sub: str = "") -> Any:
    """The command of this name, None when there is none. `Any`: typer keeps click's types to itself."""
    root = typer.main.get_command(app)
    found = root.get_command(typer.Context(root), name)  # type: ignore[attr-defined]
    return found.commands.get(sub) if found and sub else found


def meant_by(call: Call) -> list[tuple[str, Any]]:
    """The commands that a call means with their names: `ctl pause|resume` means two, a bare `offsets` all of its own."""
    name, *rest = call.text.split()
    group = command(name)
    if group is None or not hasattr(group, "commands"):
        return [(name, group)]
    subs = rest[0].split("|") if rest else []
    if not subs or subs[0].startswith("-"):
        return [(name, group)]
    return [(f"{name} {sub}", command(name, sub)) for sub in subs]


def spellings(one: Any) -> set[str]:
    return {"--help"} | {spelling for parameter in one.params for spelling in parameter.opts}


CALLS = sorted({call for page in PAGES for call in calls_of(page)})


def test_pages_are_found() -> None:
    assert len(PAGES) > 10
    assert len(CALLS) > 80


def test_each_command_that_a_page_names_is_there_with_its_options() -> None:
    wrong = []
    for call in CALLS:
        for name, one in meant_by(call):
            if one is None:
                wrong.append(f"{call.page}: no command {name!r}")
                continue
            wrong += [f"{call.page}: {name} has no {option}" for option in set(OPTION.findall(call.text)) - spellings(one)]
    assert wrong == []


def test_each_option_that_stands_alone_is_one_of_some_command() -> None:
    root = typer.main.get_command(app)
    names = root.list_commands(typer.Context(root))  # type: ignore[attr-defined]
    every = [one for name in names for one in [command(name), *getattr(command(name), "commands", {}).values()]]
    known = {spelling for one in every for spelling in spellings(one)}
    pages = [
        page for page in PAGES if page.name in {"README.md", "operating.md", "troubleshooting.md", "commands.md", "doctor.md", "api.md"}
    ]
    named = {(page.name, text.split()[0]) for page in pages for text in quoted(page) if re.match(r"--?[a-z]", text)}
    assert {(page, option) for page, option in named if option not in known} == set()


def test_each_command_has_a_row_in_commands_md() -> None:
    root = typer.main.get_command(app)
    shown = {name for call in CALLS if call.page == "commands.md" for name, _ in meant_by(call)}
    there = set()
    for name in root.list_commands(typer.Context(root)):  # type: ignore[attr-defined]
        subs = getattr(command(name), "commands", {})
        there |= {f"{name} {sub}" for sub in subs} or {name}
    assert there - shown == set()


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_each_page_is_linked_from_the_readme() -> None:
    linked = set(LINK.findall(content(ROOT / "README.md")))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").iterdir() if page.name != "images"} <= linked


def problems_of(definition: str, directory: Path) -> list[str]:
    """What the loader says of it, and an editor with our schema; files that pages name are there."""
    schema = re.search(rf"^`{SCHEMAS}/order.avsc`:\n\n```json\n(.*?)^```$", content(ROOT / "docs/records.md"), re.MULTILINE | re.DOTALL)
    assert schema
    (directory / "order.avsc").write_text(schema[1])
    path = directory / "definition.yaml"
    path.write_text(definition.replace(SCHEMAS, str(directory)).replace("/etc/copycat/ca.pem", str(directory / "ca.pem")))
    for name in CREDENTIALS:
        (directory / name).write_text("not shown")
    loaded = load_file(path, AgentOptions(), environ={"CREDENTIALS_DIRECTORY": str(directory)})
    for_editors = [f"schema: {error.instance}" for error in validator().iter_errors(data(parse(definition)))]
    return [f"{problem.text}: {problem.source_line}" for problem in loaded.problems] + for_editors


@cache
def validator() -> jsonschema.Draft202012Validator:
    """What `copycat schema` gives editors."""
    return jsonschema.Draft202012Validator(definition_schema())


def is_whole(block: str) -> bool:
    return all(re.search(rf"^{key}:", block, re.MULTILINE) for key in ("name", "source"))


def whole(piece: str) -> str:
    """A definition with this piece of one in it: some of its sections, or some steps."""
    lines = piece.splitlines()
    steps = lines[0].lstrip().startswith("- ")
    given = "transforms:\n" + "\n".join(f"  {line.removeprefix('  ')}" for line in lines) if steps else piece
    rest = {key: text for key, text in DEFAULTS.items() if not re.search(rf"^{key}:", given, re.MULTILINE)}
    return "".join(f"{key}: {text}\n" for key, text in rest.items()) + given + "\n"


TEST = re.compile(r"(?!tests/$)(?:tests/)?(?P<file>(?:\w+/)*test_\w+\.py)?(?:::(?P<name>\w+))?")
"""A test as pages name it: a file below tests/, a test in it, or one in the file that was named last on the line."""


@cache
def files_named(name: str) -> tuple[Path, ...]:
    """Those below tests/ that this name, or end of a path, means."""
    return tuple(path for path in (ROOT / "tests").rglob(name.rpartition("/")[2]) if path.as_posix().endswith(f"/{name}"))


def wrongly_named_tests(line: str) -> list[str]:
    """Names that mean no test, or several files."""
    wrong: list[str] = []
    files: tuple[Path, ...] = ()
    for found in filter(None, map(TEST.fullmatch, re.findall(r"`([^`\n]+)`", line))):
        files = files_named(found["file"]) if found["file"] else files
        if len(files) != 1 or (found["name"] and f"def {found['name']}(" not in content(files[0])):
            wrong.append(found[0])
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_test_that_a_page_names_is_there(page: Path) -> None:
    lines = content(page).splitlines()
    assert [wrong for line in lines for wrong in wrongly_named_tests(line)] == []


def test_no_fault_is_told_twice() -> None:
    faults = content(ROOT / "docs/reliability.md").partition("\n## By fault\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|", faults, re.MULTILINE)
    assert len(rows) > 50
    assert [row for row in set(rows) if rows.count(row) > 1] == []


def test_each_definition_on_a_page_loads(tmp_path: Path) -> None:
    found = [(page.name, block) for page in PAGES for block in blocks(page, "yaml") if is_whole(block)]
    assert len(found) > 14
    assert [(name, problems) for name, block in found if (problems := problems_of(block, tmp_path))] == []


def test_each_piece_of_a_definition_on_a_page_loads(tmp_path: Path) -> None:
    pieces = [(page.name, block) for page in PAGES for block in blocks(page, "yaml") if re.match(r" *- |(?:transforms|converters):", block)]
    assert len(pieces) > 10
    make_authority(tmp_path, "ca")
    assert [(name, problems) for name, piece in pieces if (problems := problems_of(whole(piece), tmp_path))] == []


def test_each_step_in_running_text_loads(tmp_path: Path) -> None:
    pages = [ROOT / "docs" / name for name in ("transforms.md", "records.md", "tools.md", "troubleshooting.md", "architecture.md")]
    texts = {(page.name, text.replace(r"\|", "|")) for page in pages for text in quoted(page)}
    steps = sorted((name, text) for name, text in texts if re.match(STEP, text) and "..." not in text)
    assert len(steps) > 10
    assert [(name, text, problems) for name, text in steps if (problems := problems_of(whole(f"- {text}"), tmp_path))] == []


def test_each_piece_of_an_agent_file_on_a_page_loads(tmp_path: Path) -> None:
    tried = 0
    for page in PAGES:
        for block in blocks(page, "yaml"):
            if re.match(r"(api|log|spark|state_dir):", block):
                path = tmp_path / "agent.yaml"
                path.write_text(block)
                load_agent(path)
                tried += 1
    assert tried


def test_each_option_of_a_definition_that_a_page_names_is_there() -> None:
    there = set(re.findall(r"^\| `([^`]+)`", content(GENERATED), re.MULTILINE))
    pattern = re.compile(rf"((?:{'|'.join(SECTIONS)})(?:\.[a-z_]+)+)\b(?!\.[a-z(])")
    named = {(page.name, name) for page in PAGES for text in quoted(page) for name in pattern.findall(text) if text.startswith(name)}
    named -= {("CONTRIBUTING.md", "errors.py")}
    assert len(named) > 20
    assert {(page, name) for page, name in named if name not in there and not name.startswith(("kafka.client.", *SPARKS_OWN))} == set()


def test_each_metric_on_a_page_is_there() -> None:
    there = {f"copycat_{family.name}" for family in FAMILIES} | {"copycat_agent"}
    named = {(page.name, name) for page in PAGES for text in quoted(page) for name in re.findall(r"\bcopycat_\w+", text)}
    assert len(named) > 30
    assert {(page, name) for page, name in named if name not in there} == set()


def test_the_states_are_explained() -> None:
    explained = re.findall(r"^\| ([A-Z]+) \|", content(ROOT / "docs/operating.md"), re.MULTILINE)
    assert [one.lower() for one in explained] == [state.value for state in State]


def test_messages_that_troubleshooting_quotes_are_those_of_the_code() -> None:
    source = "\n".join(content(path) for path in (ROOT / "copycat_agent").rglob("*.py"))
    code = re.sub(r'"\n\s*f?"', "", source)  # a text that is broken over lines
    cells = re.findall(r"^\| (`[^|]*?) \|", content(ROOT / "docs/troubleshooting.md"), re.MULTILINE)
    messages = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    pieces = {piece.strip(" .:;,'()") for message in messages for piece in VARYING.split(message)}
    told = {piece for piece in pieces if len(piece) > 5 and not any(piece in known for known in FOREIGN)}
    assert len(told) > 25
    assert sorted(piece for piece in told if piece not in code) == []
