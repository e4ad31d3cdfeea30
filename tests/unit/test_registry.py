"""Promises of parts that installed packages bring: found by name, only when asked for, and harmless to everybody else when they are bad."""

from __future__ import annotations

import functools
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions import LoadResult, load_directory
from copycat_agent.encoding.encoder import compiled
from copycat_agent.errors import FatalError
from copycat_agent.formats.records import FORMATS
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.registry import MissingPartError, Registry, UnusablePart
from copycat_agent.sources import SOURCES
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms import TRANSFORMS, Draft, build_transform
from tests.rig.packages import SHOUT, install

REGISTRIES: tuple[Registry[Any], ...] = (SOURCES, FORMATS, TRANSFORMS, CONVERTERS)
GOOD = "name: good\nsource: {type: log_file, include: [/var/log/good.log]}\nrecord: {topic: logs}\n"

Install = Callable[..., Path]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install` into a directory on the path, for one test: what it imported is forgotten, but for the agent's own parts."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)
    yield functools.partial(install, site)
    for name in set(sys.modules) - before:
        if not name.startswith("copycat_agent."):
            del sys.modules[name]
    for one in REGISTRIES:
        one.forget()


def load(directory: Path, *sections: str) -> LoadResult:
    """A good definition, and one for each of the given sections."""
    directory.mkdir(exist_ok=True)
    (directory / "a.yaml").write_text(GOOD)
    for number, section in enumerate(sections):
        head = f"name: bad-{number}\nrecord: {{topic: logs}}\n"
        source = "" if section.startswith("source:") else f"source: {{type: log_file, include: [/var/log/{number}.log]}}\n"
        (directory / f"b{number}.yaml").write_text(head + source + section)
    return load_directory(directory, AgentOptions(), environ={})


def test_a_transform_of_a_package_is_found_by_its_name(installed: Install, tmp_path: Path) -> None:
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": SHOUT})
    loaded = load(tmp_path / "d", "transforms: [{shout: message, on_error: keep, if: {message: {not: x}}}]\n")
    assert loaded.problems == ()
    definition = loaded.files[1].definition
    assert definition is not None
    step = build_transform(pickle.loads(pickle.dumps(definition)).transforms[0]).bind(SplitMeta("/f", 1, "h", "c"))
    record = Draft(b"hello")
    assert step(record) is True
    assert record.value == {"message": "HELLO"}
    assert TRANSFORMS.origin("shout") == ("copycat-shout", "1.0")
    assert "shout" in list(TRANSFORMS)


def test_a_name_of_ours_is_ours_and_its_package_is_not_even_imported(installed: Install, tmp_path: Path) -> None:
    installed(
        "copycat-mask", {"transforms": {"mask": "masking_x:MASK"}, "converters": {"json": "masking_x:J"}}, {"masking_x": "raise SystemExit"}
    )
    loaded = load(tmp_path / "d", "transforms: [{mask: {a: x}}]\nconverters: {value: json}\n")
    assert loaded.problems == ()
    assert TRANSFORMS["mask"] is TRANSFORMS.built_in["mask"]
    assert "masking_x" not in sys.modules
    assert list(TRANSFORMS).count("mask") == 1


def test_definitions_that_need_no_package_never_look_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(**_: str) -> None:
        raise AssertionError("a start pays for nobody's packages")

    monkeypatch.setattr(metadata, "entry_points", looks)
    loaded = load(
        tmp_path / "d", "transforms: [{mask: {a: x}, if: {a: 1}, on_error: drop}, {sample: 0.5}]\nconverters: {key: string, value: json}\n"
    )
    assert loaded.problems == ()
    definition = loaded.files[1].definition
    assert definition is not None
    compiled(pickle.dumps(definition))


OPTIONS = "from copycat_agent.extending import *\nclass O(StepOptions):\n    bad: str = Field(description='x')\n"
WITHOUT_SCHEMA = """
from copycat_agent.extending import *
class T: pass
class O(StepOptions):
    model_config = {"arbitrary_types_allowed": True}
    bad: T = Field(description="x")
BAD = TransformKind(O, print)
"""
BAD_PARTS: list[tuple[str, str]] = [
    ("raise ValueError('secret')", r"it cannot be loaded: ValueError at bad_part.py:1$"),
    ("import no_such_module", r"it cannot be loaded: ModuleNotFoundError: No module named 'no_such_module' at bad_part.py:1$"),
    ("raise SystemExit(3)", r"it cannot be loaded: SystemExit at bad_part.py:1$"),
    ("def f(:", r"it cannot be loaded: SyntaxError at bad_part.py:1$"),
    ("OTHER = 1", r"it cannot be loaded: AttributeError: module 'bad_part' has no attribute 'BAD'$"),
    ("BAD = 'nonsense'", r"it is a str, not a TransformKind$"),
    ("BAD = None", r"it is a NoneType, not a TransformKind$"),
    ("from copycat_agent.extending import *\nBAD = TransformKind(int, print)", r"its options are not a class derived from StepOptions$"),
    ("from copycat_agent.extending import *\nBAD = TransformKind(Options, print)", r"its options are not a class derived from Step"),
    (OPTIONS.replace("bad:", "good:") + "BAD = TransformKind(O, print)", r"its options have no field 'bad', which holds"),
    (WITHOUT_SCHEMA, r"it cannot be loaded: PydanticInvalidForJsonSchema"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), BAD_PARTS, ids=[str(number) for number in range(len(BAD_PARTS))])
def test_a_bad_package_is_one_error_where_it_is_used_and_nothing_to_others(
    installed: Install, tmp_path: Path, text: str, reason: str
) -> None:
    installed("copycat-bad", {"transforms": {"bad": "bad_part:BAD"}}, {"bad_part": text}, version="2.1")
    loaded = load(tmp_path / "d", "transforms:\n  - bad: message\n", "transforms: [{sample: 0.5}]\n")
    (problem,) = loaded.problems
    assert (Path(problem.path).name, problem.line, problem.column, problem.code) == ("b0.yaml", 5, 5, "unusable-package")
    assert problem.text.startswith("transform 'bad' of package copycat-bad 2.1: ")
    assert re.search(reason, problem.text)
    assert "secret" not in problem.text
    assert problem.hint
    assert [file.definition is not None for file in loaded.files] == [True, False, True]
    assert "bad" not in list(TRANSFORMS)
    assert "bad" in TRANSFORMS.names()
    with pytest.raises(MissingPartError, match="copycat-bad"):
        TRANSFORMS["bad"]
    assert TRANSFORMS.get("bad") is None


@pytest.mark.parametrize(
    ("group", "section", "place"),
    [
        ("sources", "source: {type: bad}\n", (3, 16)),
        ("formats", "source: {type: spool_dir, dir: /in, format: bad}\n", (3, 45)),
        ("formats", "source: {type: spool_dir, dir: /in, format: {type: bad}}\n", (3, 52)),
        ("converters", "converters: {value: bad}\n", (4, 21)),
        ("converters", "converters: {key: {type: bad, x: 1}}\n", (4, 26)),
    ],
)
@pytest.mark.parametrize("text", ["raise RuntimeError", "BAD = 1", OPTIONS + "BAD = TransformKind(O, print)"])
def test_the_same_for_the_other_kinds(
    installed: Install, tmp_path: Path, group: str, section: str, place: tuple[int, int], text: str
) -> None:
    installed("copycat-bad", {group: {"bad": "bad_part:BAD"}}, {"bad_part": text})
    (problem,) = load(tmp_path / "d", section).problems
    assert (problem.line, problem.column, problem.code) == (*place, "unusable-package")
    assert "package copycat-bad 1.0" in problem.text


def test_the_type_of_options_has_to_be_the_name(installed: Install, tmp_path: Path) -> None:
    text = """
        from typing import Literal
        from copycat_agent.extending import ConverterKind, ConverterOptions, Field

        class O(ConverterOptions):
            type: Literal["other"] = Field("other", description="x")

        BAD = ConverterKind(O, print)
    """
    installed("copycat-bad", {"converters": {"bad": "bad_part:BAD"}}, {"bad_part": text})
    (problem,) = load(tmp_path / "d", "converters: {value: bad}\n").problems
    assert problem.text.endswith("the type of its options is not Literal['bad']")


def test_a_name_that_two_packages_bring_is_nobodys(installed: Install, tmp_path: Path) -> None:
    installed("copycat-one", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": SHOUT})
    installed("copycat-two", {"transforms": {"shout": "shouting_2:SHOUT"}}, {"shouting_2": SHOUT})
    (problem,) = load(tmp_path / "d", "transforms: [{shout: message}]\n").problems
    assert problem.text == "transform 'shout' is brought by more than one package: package copycat-one 1.0 and package copycat-two 1.0"
    assert not {"shouting", "shouting_2"} & set(sys.modules)


def test_a_package_that_is_repaired_is_there_without_a_restart(installed: Install, tmp_path: Path) -> None:
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": "raise RuntimeError"})
    assert isinstance(TRANSFORMS.find("shout"), UnusablePart)
    installed("copycat-other", {}, {"shouting": SHOUT + "\n    # of another length, since times of compiled files are in seconds"})
    assert load(tmp_path / "d", "transforms: [{shout: message}]\n").problems == ()


VALIDATING = SHOUT.replace(
    "    def build", "        def model_post_init(self, context):\n            raise RuntimeError(self.shout)\n\n    def build", 1
)


def test_validators_that_raise_anything_are_a_problem_of_the_definition(installed: Install, tmp_path: Path) -> None:
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": VALIDATING})
    loaded = load(tmp_path / "d", "transforms: [{shout: secret}]\n")
    (problem,) = loaded.problems
    assert (problem.line, problem.code) == (4, "unusable-package")
    assert problem.text.startswith("transform 'shout' of package copycat-shout 1.0: RuntimeError at shouting.py:")
    assert "secret" not in problem.text
    assert loaded.files[0].definition is not None


def definition_of(loaded: LoadResult) -> Definition:
    assert loaded.problems == ()
    definition = loaded.files[1].definition
    assert definition is not None
    return definition


def test_a_step_that_raises_is_fatal_and_told_by_package_and_place_without_data(installed: Install, tmp_path: Path) -> None:
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": SHOUT})
    definition = definition_of(load(tmp_path / "d", "transforms: [{shout: gone, on_error: keep}]\nerrors: {tolerance: all}\n"))
    step = build_transform(definition.transforms[0], 3).bind(SplitMeta("/f", 1, "h", "c"))
    with pytest.raises(FatalError) as caught:
        step(Draft({"card": "4111"}))
    words = r"^transforms\[3\] shout of package copycat-shout 1.0: KeyError at shouting.py:12; this is a fault of that package"
    assert re.search(words, str(caught.value)), caught.value


@pytest.mark.parametrize("answer", ["None", "1", "draft"])
def test_a_step_that_does_not_say_whether_a_record_goes_on_drops_none(installed: Install, tmp_path: Path, answer: str) -> None:
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": SHOUT.replace("return True", f"return {answer}")})
    definition = definition_of(load(tmp_path / "d", "transforms: [{shout: message}]\n"))
    with pytest.raises(FatalError, match=r"shout. of package copycat-shout 1\.0: its step answered \w+, not True or False"):
        build_transform(definition.transforms[0]).bind(SplitMeta("/f", 1, "h", "c"))(Draft(b"x"))


@pytest.mark.parametrize("place", ["def build(options):", "def step(draft):"])
def test_what_cannot_be_built_or_compiled_is_fatal_to_its_connector(installed: Install, tmp_path: Path, place: str) -> None:
    indent = " " * (place == "def step(draft):") * 4
    text = SHOUT.replace(place, f"{place}\n    {indent}    raise ValueError('secret')")
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": text})
    definition = definition_of(load(tmp_path / "d", "transforms: [{shout: message}]\n"))
    with pytest.raises(FatalError, match=r"package copycat-shout 1\.0: ValueError at shouting\.py:") as caught:
        build_transform(definition.transforms[0]).bind(SplitMeta("/f", 1, "h", "c"))(Draft(b"x"))
    assert "secret" not in str(caught.value)


def test_columns_that_fail_are_unknown(installed: Install) -> None:
    text = SHOUT.replace("TransformKind(ShoutOptions, build)", "TransformKind(ShoutOptions, build, lambda options, before: 1 / 0)")
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": text})
    kind = TRANSFORMS["shout"]
    assert kind.columns(kind.options.model_validate({"shout": "a"}), ()) is None


def test_a_task_that_lacks_the_package_says_so(installed: Install, tmp_path: Path) -> None:
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": SHOUT})
    pickled = pickle.dumps(definition_of(load(tmp_path / "d", "transforms: [{shout: message}]\n")))
    del sys.modules["shouting"]
    (tmp_path / "site" / "shouting.py").unlink()
    for cached in (tmp_path / "site").glob("__pycache__/shouting*"):
        cached.unlink()
    with pytest.raises(FatalError, match=r"a task cannot read the definition: ModuleNotFoundError: No module named 'shouting'; install"):
        compiled(pickled)


def test_a_package_asks_for_parts_of_others_while_it_is_imported(installed: Install) -> None:
    asking = "from copycat_agent.extending import TRANSFORMS\nTRANSFORMS['shout']\n" + dedent(SHOUT.replace("shout", "louder"))
    installed("copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": SHOUT})
    installed("copycat-louder", {"transforms": {"louder": "louder:SHOUT"}}, {"louder": asking})
    assert not isinstance(TRANSFORMS["louder"], UnusablePart)


def test_what_is_missing_is_a_key_error_and_crosses_processes() -> None:
    with pytest.raises(KeyError) as caught:
        CONVERTERS["no_such"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, FatalError)
    assert str(again) == str(caught.value)
    assert str(again).startswith("unknown converter 'no_such'; ")
