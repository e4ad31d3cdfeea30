"""Builds and inspects parts of Spark's plans through JVM objects, and rewrites a query so that no record fails it (`SafeQueryRewriter`)."""

# ruff: noqa: SLF001 - pyspark keeps the JVM objects private

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from copycat_agent.batch.sql_table import FAILED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Catalyst:
    """Builds nodes and expressions of Spark's plans."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session._jsparkSession
        assert session._jvm is not None
        self._catalyst = session._jvm.org.apache.spark.sql.catalyst
        self._expressions = self._catalyst.expressions
        self._datasets = session._jvm.org.apache.spark.sql.classic.Dataset
        self._types = session._jvm.org.apache.spark.sql.types
        self._utils = session._jvm.org.apache.spark.api.python.PythonUtils
        self._option = session._jvm.scala.Option
        self._java = session._jvm.java.util.ArrayList

    def seq(self, items: list[Any]) -> Any:  # noqa: ANN401
        """Returns a Scala sequence of these items."""
        found = self._java()
        for item in items:
            found.add(item)
        return self._utils.toSeq(found)

    def empty(self, ddl: str) -> Any:  # noqa: ANN401
        """Returns an empty dataset with these columns."""
        return self._session.createDataFrame(self._java(), self._types.StructType.fromDDL(ddl))

    def dataset(self, plan: Any) -> Any:  # noqa: ANN401
        """Returns a dataset for a plan, which can be run."""
        return self._datasets.ofRows(self._session, plan)

    def analysed(self, parsed: Any) -> Any:  # noqa: ANN401
        """Returns the plan with all names resolved, and WITH inlined."""
        plan = self.dataset(parsed).queryExecution().analyzed()
        return self._catalyst.optimizer.InlineCTE(True, False, False).apply(plan)

    def project(self, columns: list[Any], plan: Any) -> Any:  # noqa: ANN401
        """Returns the plan with these columns only."""
        return self._catalyst.plans.logical.Project(self.seq(columns), plan)

    def alias(self, expression: Any, name: str, same_as: Any = None) -> Any:  # noqa: ANN401
        """Returns `expression AS name`, with the id of the column `same_as`, if given, so that references to that resolve to it."""
        number = self._expressions.NamedExpression.newExprId() if same_as is None else same_as.exprId()
        return self._expressions.Alias(expression, name, number, self.seq([]), self._option.empty(), self.seq([]))

    def null_text(self) -> Any:  # noqa: ANN401
        """Returns a null of type string."""
        return self._expressions.Literal.create(None, self._types.DataTypes.StringType)

    def text(self, text: str) -> Any:  # noqa: ANN401
        """Returns a string literal."""
        return self._expressions.Literal.create(text, self._types.DataTypes.StringType)

    def tried(self, expression: Any) -> Any:  # noqa: ANN401
        """Returns a struct with the expression's value, null where the expression raises."""
        return self._expressions.TryEval(self._expressions.CreateNamedStruct(self.seq([self.text("v"), expression])))

    def field(self, struct: Any) -> Any:  # noqa: ANN401
        """Returns the value in a struct of `tried`."""
        return self._expressions.GetStructField(struct, 0, self._option.empty())

    def mark(self, struct: Any, name: str) -> Any:  # noqa: ANN401
        """Returns an expression that is `name` where a struct of `tried` is null, else null."""
        return self._expressions.If(self._expressions.IsNull(struct), self.text(name), self.null_text())

    def first(self, expressions: list[Any]) -> Any:  # noqa: ANN401
        """Returns the first of the expressions that is not null."""
        return expressions[0] if len(expressions) == 1 else self._expressions.Coalesce(self.seq(expressions))

    def either(self, one: Any, other: Any) -> Any:  # noqa: ANN401
        """Returns `one OR other`."""
        return self._expressions.Or(one, other)

    def where(self, condition: Any, plan: Any) -> Any:  # noqa: ANN401
        """Returns the plan's rows for which the condition holds."""
        return self._catalyst.plans.logical.Filter(condition, plan)

    def is_filled(self, collection: Any) -> Any:  # noqa: ANN401
        """Returns the condition that a collection has elements."""
        nothing = self._expressions.Literal.create(0, self._types.DataTypes.IntegerType)
        return self._expressions.GreaterThan(self._expressions.Size(collection, False), nothing)

    def is_not_null(self, expression: Any) -> Any:  # noqa: ANN401
        """Returns `expression IS NOT NULL`."""
        return self._expressions.IsNotNull(expression)


def kind_of(thing: Any) -> str:  # noqa: ANN401
    """Returns the name of a JVM object's class."""
    return str(thing.getClass().getSimpleName())


def each(seq: Any) -> list[Any]:  # noqa: ANN401
    """Returns the items of a Scala sequence."""
    return [seq.apply(number) for number in range(seq.size())]


_UNFOLDING = ("Explode", "PosExplode", "Inline")
"""Functions that make a row of each element."""


class SafeQueryRewriter:
    """Rewrites a query so that it fails for no record.

    Each expression is evaluated by `TryEval` within a struct, which is null only if the expression raises. An extra column has the name of
    the first column whose expression raised; such rows pass every later filter.
    """

    def __init__(self, jvm: Catalyst, record: Any) -> None:  # noqa: ANN401
        self._jvm = jvm
        self._record = record
        self._failed: Any = None

    def chain(self, nodes: tuple[Any, ...], plan: Any) -> Any:  # noqa: ANN401
        """Returns the rewritten nodes as a plan over `plan`."""
        plan = self._with_failed(plan, self._jvm.null_text(), list(each(plan.output())))
        for node in reversed(nodes):
            plan = {"Project": self._project, "Filter": self._filter, "Generate": self._generate}[kind_of(node)](node, plan)
        return plan

    def _with_failed(self, plan: Any, failed: Any, columns: list[Any]) -> Any:  # noqa: ANN401
        alias = self._jvm.alias(failed, FAILED)
        self._failed = alias.toAttribute()
        return self._jvm.project([*columns, alias], plan)

    def _project(self, node: Any, plan: Any) -> Any:  # noqa: ANN401
        jvm, tried, columns, marks = self._jvm, [], [], []
        for column in each(node.projectList()):
            if kind_of(column) == "Alias" and column.child().children().size():
                held = jvm.alias(jvm.tried(column.child()), column.name())
                tried.append(held)
                value = jvm.field(held.toAttribute())
                columns.append(jvm.alias(value, column.name(), column))
                marks.append(jvm.mark(held.toAttribute(), column.name()))
            else:
                columns.append(column)
        if tried:
            plan = jvm.project([*each(plan.output()), *tried], plan)
        return self._with_failed(plan, jvm.first([self._failed, *marks]), [*columns, self._record])

    def _filter(self, node: Any, plan: Any) -> Any:  # noqa: ANN401
        jvm, condition, columns = self._jvm, node.condition(), list(each(plan.output()))
        held = jvm.alias(jvm.tried(condition), "condition")
        tried, failed = held.toAttribute(), self._failed
        others = [one for one in columns if one.name() != FAILED]
        plan = self._with_failed(
            jvm.project([*columns, held], plan), jvm.first([failed, jvm.mark(tried, "WHERE")]), [*others, tried]
        )  # fmt: skip
        passes = jvm.either(jvm.is_not_null(self._failed), jvm.field(tried))
        return jvm.project([*others, self._failed], node.copy(passes, plan))

    def _generate(self, node: Any, plan: Any) -> Any:  # noqa: ANN401
        """Evaluates the collection carefully, too. A record for which it raises gets one row, as OUTER gives to an empty collection.

        Other generators may still fail; then `sql_jobs` searches for the record with smaller batches.
        """
        jvm, generator = self._jvm, node.generator()
        if kind_of(generator) not in _UNFOLDING:
            return node.withNewChildren(jvm.seq([plan]))
        columns = [one for one in each(plan.output()) if one.name() != FAILED]
        unfolded = each(generator.children())[0]
        held = jvm.alias(jvm.tried(unfolded), "unfolded")
        tried, failed = held.toAttribute(), self._failed
        marked = jvm.first([failed, jvm.mark(tried, f"{generator.prettyName()}(...)")])
        plan = self._with_failed(jvm.project([*each(plan.output()), held], plan), marked, [*columns, tried])
        value = jvm.field(tried)
        plan = node.copy(
            generator.withNewChildren(jvm.seq([value])), jvm.seq([]), True, node.qualifier(), node.generatorOutput(), plan
        )  # fmt: skip
        if not node.outer():
            plan = jvm.where(jvm.either(jvm.is_not_null(self._failed), jvm.is_filled(value)), plan)
        return jvm.project([*columns, *each(node.generatorOutput()), self._failed], plan)
