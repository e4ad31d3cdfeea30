"""The shape of the code: imports point down, one door per library, no cycles, nothing outside the table.

The checker is a function over a directory; it is tried on made-up trees that break each rule once.
"""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.fields import Classes
from tests.reach_ins import all_reach_ins, forget, nodes, reach_ins

PROJECT = Path(__file__).parents[1]
PACKAGE = "copycat_agent"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    (
        "model",
        "logs",
        "tls_channel",
        "templates",
        "patterns",
        "registry",
        "small_files",
        "failpoints",
        "display",
        "probe",
        "sql_types",
        "mountinfo",
    ),
    ("options", "transactions", "fair_executor", "wake", "maven"),
    ("oauth",),
    ("sources", "sinks", "formats", "transforms", "converters", "producer", "offsets", "watch", "systemd"),
    ("encoding",),
    ("definitions", "batch", "extending", "backoff"),
    ("delivery",),
    ("executor",),
    ("runner", "dlq"),
    ("spark", "worker", "dev_broker", "demo"),
    ("control",),
    ("metrics", "api"),
    ("agent",),
    ("workbench",),
    ("backfill", "bundle"),
    ("cli",),
    ("__main__",),
)
"""From the bottom up. A name is a module or a package. The package itself (`__init__`) holds only the version."""

SIBLINGS: dict[tuple[str, str], str] = {
    ("converters", "formats"): "values in Kafka are read as the records of files are: one meaning of each type",
    ("transforms", "formats"): "a step that parses reads JSON, rows and types of fields as files are read: one meaning of each",
    ("sinks", "converters"): "fields are written as the json converter writes them, and fit types and Avro schemas as in its avro",
    ("sources", "transforms"): "a schema that a data source gives as text is read as the columns of queries are: one meaning of each type",
    ("sinks", "sources"): "an address of files to write says what one of files to read says, and holds no secrets either",
    ("sources", "formats"): "a source opens a file through the reader of its format, which also says how much of the tail to hash",
}
"""Imports between siblings that are meant: (importer, imported) -> reason."""

DOORS: dict[str, tuple[str, ...]] = {
    "pyspark": ("spark", "sources"),
    "py4j": ("spark",),
    "urllib3": ("sources",),
    "confluent_kafka": ("producer", "converters"),
    "sqlite3": ("offsets",),
    "watchdog": ("wake",),
    "cryptography": ("spark",),
    "yaml": ("definitions",),
    "pydantic": ("options",),
    "orjson": ("converters", "formats", "encoding", "sinks"),
    "pyarrow": ("formats", "sources", "sinks", "encoding", "batch", "spark"),
    "numpy": ("encoding",),
    "fastavro": ("formats", "converters"),
    "httpx2": ("converters",),
    "aws_msk_iam_sasl_signer": ("oauth",),
    "boto3": ("sinks", "sources"),
    "botocore": ("oauth", "sinks", "sources"),
    "obstore": ("sinks",),
    "hdfs_native": ("sinks", "sources"),
    "joserfc": ("oauth",),
    "jsonschema": ("converters",),
    "jsonschema_rs": ("converters",),
    "referencing": ("converters",),
    "grpc_tools": ("converters",),
    "google": ("converters",),
    "cramjam": ("formats", "sources", "sinks"),
    "lz4": ("sources",),
    "regex": ("patterns",),
    "typer": ("cli",),
    "werkzeug": ("api",),
    "h11": ("api",),
    "prometheus_client": ("metrics",),
    "backports": ("formats", "sources", "sinks"),
    "compression": ("formats", "sources", "sinks"),
}
"""Outside library -> the only modules or packages that import it."""

ON_CONTRACT = ("sources.jdbc", "sources.journald", "sources.kafka", "sources.objects")
"""Packages that stand where another project's would: of ours they import `extending` and themselves, and nobody imports them.

They are imported when a definition asks for what they bring, by its name in a table of the registry.
"""

LATE: dict[tuple[str, str], str] = {
    ("formats", "copycat_agent.formats.records.avro_format"): "imports fastavro, 0.12 s that an agent of log files does without",
    ("formats", "copycat_agent.formats.records.parquet_values"): "imports pyarrow, for rows of columns that are looked at one by one",
    ("formats", "copycat_agent.formats.records.parquet_format"): "imports pyarrow, 0.25 s and 40 MiB that log files do without",
    ("sinks", "copycat_agent.sinks.formats.parquet_files"): "imports pyarrow, as parquet_format",
    ("sinks", "copycat_agent.sinks.formats.avro_files"): "imports fastavro, as avro_form",
    ("encoding", "copycat_agent.formats.records.avro_format"): "imports fastavro, as avro_form",
    ("converters", "copycat_agent.converters.avro_form"): "imports fastavro, 0.1 s that other converters do without",
    ("converters", "copycat_agent.converters.json_form"): "imports jsonschema, 0.1 s that other converters do without",
    ("converters", "copycat_agent.converters.proto_form"): "imports protobuf and its compiler, 0.1 s that others do without",
    ("converters", "copycat_agent.converters.proto_reading"): "as proto_form",
    ("converters", "copycat_agent.converters.schema_converter"): "imports the client of schema registries, 0.24 s",
    ("converters", "copycat_agent.converters.registry_access"): "imports the client of schema registries, 0.24 s",
    ("converters", "copycat_agent.converters.registered_reading"): "as registry_access, and fastavro",
    ("__main__", "copycat_agent.probe"): "one command of all needs it",
    ("__main__", "copycat_agent.cli.main"): "half a second of imports, in which signals must find their handlers",
    ("oauth", "http.client"): "40 ms that only those who log in with a token need",
    ("oauth", "joserfc"): "0.2 s, for assertions that the agent signs itself",
    ("oauth", "joserfc.jwk"): "as joserfc",
    ("oauth", "aws_msk_iam_sasl_signer"): "an extra, that need not be there",
    ("oauth", "botocore.exceptions"): "comes with it",
    ("spark", "copycat_agent.spark.sql_jobs"): "imports SQL of pyspark, and pyarrow, which connectors without a query do without",
    ("spark", "copycat_agent.spark.sql_task"): "as sql_jobs",
    ("spark", "copycat_agent.spark.session"): "imports pyspark, 0.2 s in which the JVM already starts",
    ("spark", "pyspark"): "as the runner: what runs in an executor looks first whether it can",
    ("spark", "copycat_agent.runner"): "imports what an executor of a cluster may lack, which it looks for first",
    ("spark", "cryptography"): "0.1 s, for the agent of a cluster alone",
    ("spark", "cryptography.hazmat.primitives"): "as above",
    ("spark", "cryptography.hazmat.primitives.asymmetric"): "as above",
    ("sources", "copycat_agent.sources.log_file.log_file"): "the driver's half, 0.05 s and 30 modules that Spark's tasks do without",
    ("sources", "copycat_agent.sources.spool_dir.spool_dir"): "as log_file",
    ("encoding", "copycat_agent.encoding.json_columns"): "imports numpy, an extra, for columns of rows alone",
    ("sources", "copycat_agent.sources.jdbc.packed_rows"): "imports pyarrow, 0.15 s, which the agent does without",
    ("spark", "copycat_agent.spark.frame_jobs"): "as sql_jobs",
    ("sources", "copycat_agent.sources.datasource.reader"): "imports SQL of pyspark, 0.5 s, for connectors of data sources alone",
    ("sources", "copycat_agent.sources.files.reading.remote_objects"): "imports pyarrow, 0.15 s that local files need not wait for",
    ("sources", "pyarrow"): "0.15 s that files of this host need not wait for",
    ("sources", "copycat_agent.sources.files.reading.hadoop"): "imports hdfs-native, an extra",
    ("sources", "copycat_agent.sources.objects.arrow_store"): "imports pyarrow, 0.15 s that S3 does without",
    ("sources", "copycat_agent.sources.objects.s3_store"): "imports boto3, an extra, 0.3 s",
    ("sinks", "copycat_agent.sinks.object_store"): "imports obstore, an extra",
    ("sinks", "copycat_agent.sinks.hdfs_store"): "imports hdfs-native, an extra",
    ("sinks", "boto3.session"): "0.3 s, which those with credentials in their environment do without",
    ("sinks", "botocore.exceptions"): "as above",
    ("sinks", "obstore.auth.boto3"): "as above",
    ("agent", "copycat_agent.metrics"): "imports prometheus_client, which the first record should not wait for",
    ("cli", "copycat_agent.agent.executor_choice"): "0.4 s, for the few who check for a cluster",
    ("cli", "copycat_agent.definitions"): "0.6 s that commands which only ask the agent do without",
    ("cli", "copycat_agent.options"): "0.15 s, as definitions",
    ("cli", "copycat_agent.spark.sql_local"): "imports pyspark, 0.2 s, for the few definitions with a query that are tried or tested",
    ("cli", "rich.console"): "0.1 s, which only a run to the end on a terminal needs",
    ("cli", "rich.progress"): "as above",
    ("api", "copycat_agent.api.app"): "imports werkzeug, 0.1 s that the first record should not wait for",
    ("api", "copycat_agent.api.port_access"): "imports ssl, only for a port with users or TLS",
    ("api", "copycat_agent.api.connect.rest_app"): "imports definitions, only for a port for clients of Kafka Connect",
    ("api", "copycat_agent.api.page.page_app"): "imports definitions, only for a port for browsers",
    ("api", "copycat_agent.api.page.child_commands"): "as above",
}
"""Imports inside functions that are meant: (module or package, what it imports) -> reason. A reason is a slow library, never a cycle."""

SAME_NAMES: dict[str, str] = {
    "backfill": "a command is named after the package that does its work",
    "base": "the contract of a package's parts: of a source, a transform, a converter, a delivery",
    "demo": "a command is named after the module that does its work",
    "losses": "a command is named after what it shows",
    "run": "the command runs the agent, the module one batch",
    "status": "a command is named after what it shows",
}
"""Classes and modules that may have one name -> the reason: the idea is one. Ten of each at most."""


MOST_FIELDS = 15
"""Fields of a class whose objects change: with more, an object is missing that some of them belong to."""

REACH_INS: dict[str, int] = {
    "tests/cli/test_backfill.py": 1,
    "tests/cli/test_plan.py": 1,
    "tests/cli/test_run.py": 6,
    "tests/cli/test_spool_views.py": 1,
    "tests/faults/sick_files.py": 1,
    "tests/faults/test_exactly_state.py": 1,
    "tests/scenarios/test_remote.py": 1,
    "tests/scenarios/test_spool_columns.py": 1,
    "tests/spark/test_cluster_lanes.py": 1,
    "tests/spark/test_cluster_words.py": 1,
    "tests/spark/test_java.py": 1,
    "tests/spark/test_runner.py": 3,
    "tests/unit/agent/conftest.py": 1,
    "tests/unit/agent/test_reload.py": 1,
    "tests/unit/backfill/test_given.py": 1,
    "tests/unit/batch/test_packed.py": 2,
    "tests/unit/converters/test_registry.py": 2,
    "tests/unit/formats/records/test_jsonl.py": 2,
    "tests/unit/formats/records/trees.py": 3,
    "tests/unit/patterns/test_bounds.py": 2,
    "tests/unit/sources/spool/cleaning.py": 3,
    "tests/unit/sources/spool/test_cleanup_retain.py": 2,
    "tests/unit/sources/spool/test_spool_attacks.py": 3,
    "tests/unit/sources/spool/test_spool_remount.py": 1,
    "tests/unit/sources/test_copied_over.py": 6,
    "tests/unit/sources/test_forgetting.py": 1,
    "tests/unit/sources/test_partial_scan.py": 3,
    "tests/unit/sources/test_kept.py": 1,
    "tests/unit/sources/test_log_file.py": 2,
    "tests/unit/sources/test_losses.py": 1,
    "tests/unit/sources/test_missed.py": 2,
    "tests/unit/sources/test_model.py": 3,
    "tests/unit/sources/test_order.py": 3,
    "tests/unit/sources/test_newcomers.py": 1,
    "tests/unit/sources/test_packed_files.py": 5,
    "tests/unit/sources/test_unpacking.py": 1,
    "tests/unit/transforms/test_pairs.py": 3,
    "tests/unit/worker/test_connector.py": 19,
    "tests/unit/worker/test_lanes.py": 3,
    "tests/unit/worker/test_names.py": 8,
    "tests/unit/worker/test_names_random.py": 1,
    "tests/unit/worker/test_operations.py": 4,
}
"""Test file -> how often it uses private names of the product. A count only goes down; a file that has none leaves the table."""


@dataclass(frozen=True)
class Import:
    """`module` (dotted, without the package's name) imports `target` (dotted, in full) in line `line`."""

    module: str
    target: str
    line: int
    is_late: bool

    @property
    def importer(self) -> str:
        return self.module.split(".")[0]

    @property
    def own(self) -> str | None:
        """The imported module or package of ours, None for others'."""
        parts = self.target.split(".")
        return (parts[1] if len(parts) > 1 else "__init__") if parts[0] == PACKAGE else None


def problems(root: Path, layers: tuple[tuple[str, ...], ...] = LAYERS) -> list[str]:
    """Every violation below `root` (the package's directory), as `module:line: what is wrong`."""
    modules = {_dotted(path, root): path for path in sorted(root.rglob("*.py"))}
    imports = _all_imports(root)
    level = {name: number for number, names in enumerate(layers) for name in names}
    found = [f"{module}: not in the layer table" for module in modules if module.split(".")[0] not in level and module != "__init__"]
    for each in imports:
        found += [f"{each.module}:{each.line}: {text}" for text in _complaints(each, level)]
    found += [f"import cycle: {' -> '.join(cycle)}" for cycle in _cycles(imports, modules)]
    packages = sorted({module.split(".")[0] for module in modules})
    return found + [f"folder cycle: {' -> '.join(cycle)}" for name in packages for cycle in _folder_cycles(name, imports, modules)]


def _complaints(each: Import, level: dict[str, int]) -> list[str]:
    found = []
    library = each.target.split(".")[0]
    if each.own is None and each.importer not in DOORS.get(library, (each.importer,)):
        found.append(f"{library} is imported outside its door {DOORS[library]}")
    if each.is_late and (each.importer, each.target) not in LATE:
        found.append(f"import of {each.target} inside a function")
    home, target = _home(each.module), each.target.removeprefix(f"{PACKAGE}.")
    if _home(target) not in ("", home):
        found.append(f"{_home(target)} is imported, which the registry does where it is asked for")
    if home:
        if each.own is not None and target != "extending" and _home(target) != home:
            found.append(f"{target} is imported by what is written against extending")
    elif each.own in level and each.importer in level and each.own != each.importer:
        if level[each.own] > level[each.importer]:
            found.append(f"{each.own} is in a layer above {each.importer}")
        elif level[each.own] == level[each.importer] and (each.importer, each.own) not in SIBLINGS:
            found.append(f"{each.own} is a sibling of {each.importer}")
    return found


def _home(module: str) -> str:
    """The package of `ON_CONTRACT` that a module belongs to, "" for any other."""
    return next((name for name in ON_CONTRACT if f"{module}.".startswith(f"{name}.")), "")


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _imports(module: str, path: Path, modules: dict[str, Path]) -> list[Import]:
    """All imports of one file, those under TYPE_CHECKING included: a type is a dependency too."""
    imports = [node for node in nodes(path) if isinstance(node, ast.Import | ast.ImportFrom)]
    is_all_on_top = not any(node.col_offset for node in imports)
    functions = [] if is_all_on_top else [node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {id(inner) for function in functions for inner in ast.walk(function)}
    found = []
    for node in imports:
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            base = _absolute(node, module, path)
            targets = [f"{base}.{alias.name}" if _is_module(f"{base}.{alias.name}", modules) else base for alias in node.names]
        found += [Import(module, target, node.lineno, id(node) in late) for target in targets]
    return found


def _absolute(node: ast.ImportFrom, module: str, path: Path) -> str:
    if not node.level:
        return node.module or ""
    package = [PACKAGE, *module.split(".")]
    package = package[: len(package) - node.level + (path.name == "__init__.py")]
    return ".".join([*package, *([node.module] if node.module else [])])


def _is_module(target: str, modules: dict[str, Path]) -> bool:
    return target.removeprefix(f"{PACKAGE}.") in modules


def _cycles(imports: list[Import], modules: dict[str, Path]) -> list[list[str]]:
    """Each cycle once, between modules (not packages)."""
    graph: dict[str, list[str]] = {module: [] for module in modules}
    for each in imports:
        target = each.target.removeprefix(f"{PACKAGE}.")
        if each.own is not None and target in graph and target not in graph[each.module]:
            graph[each.module].append(target)
    return _cycles_of(graph)


def _folder_cycles(package: str, imports: list[Import], modules: dict[str, Path]) -> list[list[str]]:
    """Each cycle once, between what lies in one folder of a package: modules, and folders with all that is in them."""
    folders = {package, *(module.rpartition(".")[0] for module in modules if module.startswith(f"{package}."))}
    found = []
    for folder in sorted(folders):
        graph: dict[str, list[str]] = {}
        for each in imports:
            ends = [_child(folder, each.module, modules), _child(folder, each.target.removeprefix(f"{PACKAGE}."), modules)]
            if ends[0] and ends[1] and ends[0] != ends[1]:
                graph.setdefault(ends[0], []).append(ends[1])
                graph.setdefault(ends[1], [])
        found += _cycles_of(graph)
    return found


def _child(folder: str, module: str, modules: dict[str, Path]) -> str:
    """What in `folder` a module is, or is in; "" when it lies elsewhere, and for the folder's own `__init__`."""
    if not module.startswith(f"{folder}.") or module not in modules:
        return ""
    return f"{folder}.{module.removeprefix(f'{folder}.').split('.')[0]}"


def _cycles_of(graph: dict[str, list[str]]) -> list[list[str]]:
    """Each cycle once, by depth-first search."""
    cycles, done = [], set[str]()

    def visit(node: str, trail: list[str]) -> None:
        if node in trail:
            cycles.append([*trail[trail.index(node) :], node])
        elif node not in done:
            for target in graph[node]:
                visit(target, [*trail, node])
            done.add(node)

    for node in graph:
        visit(node, [])
    return cycles


def duplicate_classes(modules: dict[str, Path]) -> set[str]:
    """Names of classes that are defined in more than one module."""
    seen: dict[str, set[str]] = {}
    for module, path in modules.items():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                seen.setdefault(node.name, set()).add(module)
    return {name for name, where in seen.items() if len(where) > 1}


def undocumented(modules: dict[str, Path]) -> list[str]:
    """Public methods without a docstring, but for those that a protocol, or a class that theirs is made of, documents."""
    classes = [(name, node) for name, path in modules.items() for node in nodes(path) if isinstance(node, ast.ClassDef)]
    told = {node.name: {one.name for one in _methods(node) if ast.get_docstring(one)} for _, node in classes}
    contracts = set().union(
        *(told[node.name] for _, node in classes if any(ast.unparse(base).startswith("Protocol") for base in node.bases))
    )
    return [
        f"{module}: {node.name}.{method.name}"
        for module, node in classes
        if not node.name.startswith("_")
        for method in _methods(node)
        if not (method.name.startswith("_") or ast.get_docstring(method) or method.name in contracts)
        if not any(method.name in told.get(ast.unparse(base).split("[")[0].split(".")[-1], ()) for base in node.bases)
    ]


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Those that need a docstring: no setters, no overloads."""
    found = [one for one in node.body if isinstance(one, ast.FunctionDef)]
    return [one for one in found if not any("setter" in ast.unparse(by) or "overload" in ast.unparse(by) for by in one.decorator_list)]


def _modules(root: Path) -> dict[str, Path]:
    return {_dotted(path, root): path for path in sorted(root.rglob("*.py"))}


@pytest.fixture(autouse=True, scope="module")
def _parsed_once() -> Iterator[None]:
    """Millions of nodes that nobody looks through for garbage while these tests run, and that are gone after them."""
    gc.disable()
    yield
    forget()
    gc.enable()


def test_public_methods_are_documented_here_or_in_their_contract() -> None:
    assert undocumented(_modules(PROJECT / PACKAGE)) == []


def test_a_method_that_nothing_documents_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'class Shop(Protocol):\n  def sell(self):\n    """Sells."""\nclass Mine:\n  def sell(self): ...\n  def close(self): ...\n'
        "class Yours(Shop):\n  def sell(self): ...\nclass _Own:\n  def open(self): ...\n"
    )
    assert undocumented({"a": tmp_path / "a.py"}) == ["a: Mine.close"]


def test_one_class_has_one_name() -> None:
    assert duplicate_classes(_modules(PROJECT / PACKAGE)) <= SAME_NAMES.keys()


def test_one_module_has_one_name() -> None:
    names = Counter(path.stem for path in (PROJECT / PACKAGE).rglob("*.py") if path.stem != "__init__")
    twice = {name for name, count in names.items() if count > 1}
    assert twice <= SAME_NAMES.keys()
    assert SAME_NAMES.keys() <= twice | duplicate_classes(_modules(PROJECT / PACKAGE)), "a name that is there once should leave the table"


def test_a_circle_of_folders_and_a_name_of_two_classes_are_found_in_a_made_up_tree(tmp_path: Path) -> None:
    files = {
        "sources/__init__.py": "from copycat_agent.sources.spool.a import A",
        "sources/base.py": "class A: ...",
        "sources/spool/a.py": "from copycat_agent.sources.base import B\nfrom copycat_agent.sources.remote.b import C\nclass A: ...",
        "sources/remote/b.py": "",
        "sources/remote/c.py": "",
    }
    _plant(tmp_path, files)
    for text, found in (("", []), ("from copycat_agent.sources.spool.a import A", ["sources.spool", "sources.remote"])):
        (tmp_path / "sources/remote/c.py").write_text(text, "utf-8")
        modules = _modules(tmp_path)
        imports = [one for module, path in modules.items() for one in _imports(module, path, modules)]
        assert {one for cycle in _folder_cycles("sources", imports, modules) for one in cycle} == set(found)
    assert duplicate_classes(_modules(tmp_path)) == {"A"}


def test_the_code_has_the_shape_it_should_have() -> None:
    assert problems(PROJECT / PACKAGE) == []


def test_the_tables_name_only_what_exists() -> None:
    there = {path.stem for path in (PROJECT / PACKAGE).iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for layer in LAYERS for name in layer} <= there
    assert {name for doors in DOORS.values() for name in doors} <= there
    assert {name for name in ON_CONTRACT if (PROJECT / PACKAGE / name.replace(".", "/")).is_dir()} == set(ON_CONTRACT)
    late = {(found.importer, found.target) for found in _all_imports(PROJECT / PACKAGE) if found.is_late}
    assert set(LATE) <= late, "a late import that is gone should leave the table"


def test_tests_use_private_names_no_more_than_they_did() -> None:
    counted = all_reach_ins()
    more = {name: found for name, found in counted.items() if len(found) > REACH_INS.get(name, 0)}
    assert more == {}, "give the product a public seam instead"
    fewer = {name: len(counted.get(name, ())) for name, count in REACH_INS.items() if len(counted.get(name, ())) < count}
    assert fewer == {}, "write the smaller counts into REACH_INS"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("from copycat_agent.worker import _loop", 1),
        ("from copycat_agent.worker import loop", 0),
        ("from tests.rig import _loop", 0),
        ("thing._store", 1),
        ("thing.inner._store._store", 2),
        ("thing._replace(a=1)", 0),
        ("monkeypatch.setattr(thing, '_store', None)", 1),
        ("monkeypatch.setattr('copycat_agent.worker._loop', None)", 1),
        ("class A:\n    def f(self) -> None:\n        self._store, super()._store", 0),
    ],
)
def test_a_use_of_a_private_name_is_found(tmp_path: Path, line: str, count: int) -> None:
    (tmp_path / "test_it.py").write_text(line, "utf-8")
    assert len(reach_ins(tmp_path / "test_it.py", {"_store"})) == count


def test_no_object_that_changes_has_many_fields() -> None:
    fields = Classes(PROJECT / PACKAGE).mutable_fields()
    assert {name: sorted(found) for name, found in fields.items() if len(found) > MOST_FIELDS} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("class A:\n    def f(self):\n        self.x = self.y, self.z = 1, (2, 3)\n        self.x += 1", 3),
        ("class A:\n    def f(me):\n        me.x: int = 1\n        me.x.y = 2\n        other.z = 3", 1),
        ("class A:\n    x = 1\n    y: int", 0),
        ("class A:\n    @staticmethod\n    def f(other):\n        other.x = 1", 0),
        ("@dataclass(slots=True)\nclass A:\n    x: int\n    _: KW_ONLY\n    y: ClassVar[int] = 1\n    z: InitVar[bool] = True", 1),
        ("class B:\n    def f(self):\n        self.x = self.y = 1\nclass A(m.B[int]):\n    def f(self):\n        self.x = self.z = 1", 3),
        ("@dataclass(frozen=True)\nclass A:\n    x: int", None),
        ("class A(NamedTuple):\n    x: int", None),
        ("class Options(BaseModel):\n    x: int\nclass A(Options):\n    def f(self):\n        self.y = 1", None),
    ],
)
def test_the_fields_of_a_class_are_counted(tmp_path: Path, text: str, count: int | None) -> None:
    (tmp_path / "a.py").write_text(text, "utf-8")
    found = Classes(tmp_path).mutable_fields().get("A")
    assert (None if found is None else len(found)) == count


@cache
def _all_imports(root: Path) -> list[Import]:
    modules = _modules(root)
    return [found for module, path in modules.items() for found in _imports(module, path, modules)]


def test_the_package_itself_imports_nothing_of_its_own() -> None:
    """Every worker process imports it."""
    assert [found for found in _all_imports(PROJECT / PACKAGE) if found.module == "__init__" and found.target != "__future__"] == []


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "requirements.lock", "requirements-dev.lock"])
def test_top_level_files_are_there(name: str) -> None:
    assert (PROJECT / name).stat().st_size > 0


def test_lock_files_pin_hashes_and_name_no_index() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (PROJECT / name).read_text("utf-8")
        requirements = [line for line in text.splitlines() if line and line[0] not in " #"]
        assert all("==" in line and line.endswith("\\") for line in requirements)
        assert "://" not in text


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"errors.py": "import copycat_agent.model", "model.py": ""}, "errors:1: model is in a layer above errors"),
        ({"model.py": "from copycat_agent import logs", "logs.py": ""}, "model:1: logs is a sibling of model"),
        ({"model.py": "from . import logs", "logs.py": ""}, "model:1: logs is a sibling of model"),
        ({"sources/a.py": "from ..offsets.b import B", "offsets/b.py": ""}, "sources.a:1: offsets is a sibling of sources"),
        (
            {"sources/__init__.py": "from .a import A", "sources/a.py": "\nfrom copycat_agent.cli import y", "cli/__init__.py": ""},
            "sources.a:2: cli is in a layer above sources",
        ),
        ({"worker.py": "import sqlite3"}, "worker:1: sqlite3 is imported outside its door ('offsets',)"),
        (
            {"cli/a.py": "from confluent_kafka.admin import X"},
            "cli.a:1: confluent_kafka is imported outside its door ('producer', 'converters')",
        ),
        ({"cli/a.py": "def f():\n    import json"}, "cli.a:2: import of json inside a function"),
        (
            {"sources/journald/a.py": "from copycat_agent.sources.base import Lag", "sources/base.py": ""},
            "sources.journald.a:1: sources.base is imported by what is written against extending",
        ),
        (
            {"sources/journald/a.py": "from copycat_agent import errors", "errors.py": ""},
            "sources.journald.a:1: errors is imported by what is written against extending",
        ),
        (
            {"cli/a.py": "from copycat_agent.sources.journald.b import B", "sources/journald/b.py": ""},
            "cli.a:1: sources.journald is imported, which the registry does where it is asked for",
        ),
        ({"utils.py": ""}, "utils: not in the layer table"),
        ({"helpers/a.py": ""}, "helpers.a: not in the layer table"),
        (
            {"batch/a.py": "from copycat_agent.batch import b", "batch/b.py": "if TYPE_CHECKING:\n    from .a import A"},
            "import cycle: batch.a -> batch.b -> batch.a",
        ),
        (
            {"sources/x/a.py": "from ..y.c import C", "sources/x/b.py": "", "sources/y/c.py": "", "sources/y/d.py": "from ..x.b import B"},
            "folder cycle: sources.x -> sources.y -> sources.x",
        ),
    ],
)  # fmt: skip
def test_each_broken_rule_is_found_in_a_made_up_tree(tmp_path: Path, files: dict[str, str], complaint: str) -> None:
    _plant(tmp_path, files)
    assert complaint in problems(tmp_path)


def test_a_made_up_tree_that_keeps_the_rules_is_praised(tmp_path: Path) -> None:
    files = {
        "__init__.py": "__version__ = '1'",
        "errors.py": "",
        "model.py": "from copycat_agent.errors import X",
        "offsets/__init__.py": "import sqlite3\nfrom copycat_agent.offsets.schema import Y\nfrom copycat_agent import __version__",
        "offsets/schema.py": "from .. import model",
        "cli/main.py": "import typer\nfrom copycat_agent.offsets import Z",
        "extending.py": "from copycat_agent.model import X",
        "sources/journald/a.py": "from copycat_agent.extending import X\nfrom copycat_agent.sources.journald.b import Y",
        "sources/journald/b.py": "from copycat_agent import extending",
    }
    _plant(tmp_path, files)
    assert problems(tmp_path) == []


def _plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
