"""Checks that a query is row-wise, and prepares it to be placed between two Python functions.

The user's query is analysed over an empty table. The result is a chain of plan nodes with all names resolved. A column with the record's
number is passed through each node here, where no query can see or lose it. For each batch the empty table at the end of the chain is
replaced by the batch's rows.

Only listed plans are allowed: an analysed plan may contain nothing but Project, Filter and Generate. Functions must be deterministic: a
query is analysed once, which fixes the seed of `uuid()` and `rand()` for all batches.
"""

# ruff: noqa: SLF001 - Spark's plans are reached through the JVM's objects, which pyspark keeps private

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from copycat_agent.batch.sql_table import FAILED, RECORD
from copycat_agent.errors import FatalError
from copycat_agent.spark import sql_words as words
from copycat_agent.spark.sql_nodes import Catalyst, SafeQueryRewriter, each, kind_of
from copycat_agent.sql_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from copycat_agent.transforms.base import Columns

_PARSED = frozenset(
    {"Project", "Filter", "Generate", "SubqueryAlias", "UnresolvedRelation", "UnresolvedSubqueryColumnAliases", "UnresolvedWith"}
    | {"PipeOperator", "UnresolvedHaving", "Aggregate", "Distinct", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Join"}
    | {"Union", "Except", "Intersect"}
)
"""Nodes allowed in a parsed query before Spark analyses it: none of them executes or reads anything."""

_NO_VALUE = frozenset(
    {"CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType", "VariantType", "NullType", "TimeType", "ObjectType"}
)
"""Types of results that records cannot have."""


class RefusedQueryError(FatalError):
    """A query that the agent does not run."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query that can be run. `nodes` is its plan from the result down to above the table; `leaf` are the table's columns."""

    session: SparkSession
    nodes: tuple[Any, ...]
    leaf: Any
    record: Any
    names: tuple[str, ...]

    def over(self, table: Any, *, careful: bool) -> Any:  # noqa: ANN401 - JVM objects, here and below
        """Returns the plan over `table`, a JVM plan with the columns of the leaf and the record's number, in this order.

        `careful`: records do not make it fail, but are marked in the column `FAILED`.
        """
        jvm = Catalyst(self.session)
        attributes = [*each(self.leaf), self.record]
        plan = jvm.project([jvm.alias(one, as_.name(), as_) for one, as_ in zip(each(table.output()), attributes, strict=True)], table)
        if careful:
            return SafeQueryRewriter(jvm, self.record).chain(self.nodes, plan)
        for node in reversed(self.nodes):
            if kind_of(node) == "Project":
                plan = jvm.project([*each(node.projectList()), self.record], plan)
            else:
                plan = node.withNewChildren(jvm.seq([plan]))
        return plan


def prepare(session: SparkSession, query: str, columns: Columns) -> Query:
    """Checks a query over a table `records` with these columns. Raises RefusedQueryError, and what py4j raises if the JVM has ended."""
    if "${" in query:  # Spark's parser would replace it by environment variables and JVM properties
        raise _refused("it holds ${, where Spark's parser would put settings of this host", "write '$' || '{' for the text itself")
    jvm = Catalyst(session)
    table = jvm.empty(", ".join(f"{quoted(column.name)} {column.type}" for column in columns))
    table.createOrReplaceTempView("records")
    try:
        parsed = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
        _look_at_parsed(parsed, {"records"})
        plan = jvm.analysed(parsed)
    except PySparkException as error:
        raise _refused(words.refusal_words(str(error)), "correct the query") from None
    except Py4JJavaError as error:
        raise _refused(words.refusal_words(str(error.java_exception.getMessage())), "correct the query") from None
    nodes, leaf = _chain(plan)
    names = _result_names(plan)
    record = jvm.empty(f"{RECORD} bigint").queryExecution().analyzed().output().apply(0)
    return Query(session, tuple(nodes), leaf, record, names)


def _refused(why: str, hint: str) -> RefusedQueryError:
    return RefusedQueryError(f"the query cannot be run: {why}", hint)


def _look_at_parsed(plan: Any, tables: set[str]) -> None:  # noqa: ANN401
    """Raises RefusedQueryError for what must not even be analysed: commands, other tables and files, subqueries, calls of Java."""
    kind = kind_of(plan)
    if kind not in _PARSED:
        raise _refused(words.PLANS.get(kind, words.COMMAND.format(kind)), words.ROW_WISE)
    if kind == "UnresolvedWith":
        for relation in each(plan.cteRelations()):
            _look_at_parsed(relation._2() if kind_of(relation) in ("Tuple2", "Tuple3") else relation.plan(), tables)
            tables = tables | {str(relation._1()).lower()}
    if kind == "UnresolvedRelation":
        name = [str(part) for part in each(plan.multipartIdentifier())]
        if len(name) != 1 or name[0].lower() not in tables:
            raise _refused(words.TABLE.format(".".join(map(quoted, name))), "write FROM records")
    for expression in each(plan.expressions()):
        _look_at_unresolved(expression)
    for child in each(plan.children()):
        _look_at_parsed(child, tables)


def _look_at_unresolved(expression: Any) -> None:  # noqa: ANN401
    kind = kind_of(expression)
    if kind in words.EXPRESSIONS and kind != "AggregateExpression":
        raise _refused(words.EXPRESSIONS[kind], words.ROW_WISE)
    if kind in ("ScalarSubquery", "Exists", "ListQuery", "InSubquery", "LateralSubquery", "FunctionTableSubqueryArgumentExpression"):
        raise _refused(words.SUBQUERY, words.ROW_WISE)
    if kind == "UnresolvedFunction":
        name = [str(part) for part in each(expression.nameParts())][-1].lower()
        if name in words.FUNCTIONS:
            raise _refused(words.FUNCTIONS[name], "leave it out")
    for child in each(expression.children()):
        _look_at_unresolved(child)


def _chain(plan: Any) -> tuple[list[Any], Any]:  # noqa: ANN401
    """Returns the nodes from the result down to above the table, and the table's columns. Raises if a node is not row-wise."""
    nodes: list[Any] = []
    below_view = False
    while True:
        kind = kind_of(plan)
        if kind == "LocalRelation" and below_view:  # VALUES of the query's own were refused before
            return nodes, plan.output()
        if kind in ("Project", "Filter", "Generate"):
            for expression in each(plan.expressions()):
                _look_at_resolved(expression)
            nodes.append(plan)
        elif kind not in ("SubqueryAlias", "View", "PipeOperator"):
            raise _refused(words.PLANS.get(kind, f"it needs {kind}, which is not row-wise"), words.ROW_WISE)
        below_view = below_view or kind == "View"
        plan = plan.child()


def _look_at_resolved(expression: Any) -> None:  # noqa: ANN401
    kind = kind_of(expression)
    if kind in words.EXPRESSIONS:
        raise _refused(words.EXPRESSIONS[kind], words.ROW_WISE)
    if kind.endswith(("Subquery", "PythonUDF", "PythonUDAF", "PythonUDTF")):
        raise _refused(words.SUBQUERY if kind.endswith("Subquery") else words.EXPRESSIONS["PythonUDF"], words.ROW_WISE)
    for child in each(expression.children()):
        _look_at_resolved(child)
    if not expression.deterministic():
        raise _refused(words.RANDOM.format(expression.prettyName()), words.NO_RANDOM)


def _look_at_type(type_: Any, name: str, whole: str) -> None:  # noqa: ANN401
    """Raises for types that records cannot have. `name` and `whole` are the column's name and type."""
    kind = kind_of(type_).rstrip("$")
    if kind in _NO_VALUE:
        raise _refused(f"column {name!r} of its result is of type {whole}, which no record has", "cast it, for example to string")
    if kind == "ArrayType":
        _look_at_type(type_.elementType(), name, whole)
    elif kind == "MapType":
        if kind_of(type_.keyType()) != "StringType" and not str(type_.keyType().typeName()).startswith("string"):
            hint = "cast it, as in CAST(m AS map<string,int>)"
            raise _refused(f"column {name!r} of its result is of type {whole}, and names of fields are texts", hint)
        _look_at_type(type_.valueType(), name, whole)
    elif kind == "StructType":
        names = [str(one) for one in type_.fieldNames()]
        if len(set(names)) < len(names):
            raise _refused(f"column {name!r} of its result has two fields of the same name", "give one of them another name, with AS")
        for field in type_.fields():
            _look_at_type(field.dataType(), name, whole)


def _result_names(plan: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Returns the names of the result's columns. Raises if they cannot be names of fields."""
    seen: dict[str, str] = {}
    for column in each(plan.output()):
        name, kind = str(column.name()), str(column.dataType().catalogString())
        if name in seen:
            raise _refused(f"two columns of its result have the name {name!r}", "give one of them another name, with AS")
        if name in (RECORD, FAILED):
            raise _refused(f"column {name!r} of its result has a name that is the agent's own", "give it another name, with AS")
        _look_at_type(column.dataType(), name, kind)
        seen[name] = kind
    return tuple(seen)
