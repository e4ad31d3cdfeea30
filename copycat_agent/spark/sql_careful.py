"""A query made such that it fails for no record: what costs more, and is done once it has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from copycat_agent.batch.sql_table import FAILED
from copycat_agent.spark.sql_nodes import each, kind_of

if TYPE_CHECKING:
    from copycat_agent.spark.sql_nodes import Jvm

_UNFOLDING = ("Explode", "PosExplode", "Inline")
"""Functions that make a row of each element."""


class Careful:
    """Makes of a query one that fails for no record.

    Each expression is tried (`TryEval` gives null where it raises), within a struct, which is null then and never else. The name of the
    first column whose expression raised goes along in a column; such rows pass every filter from there on.
    """

    def __init__(self, jvm: Jvm, record: Any) -> None:  # noqa: ANN401
        self._jvm = jvm
        self._record = record
        self._failed: Any = None

    def chain(self, nodes: tuple[Any, ...], plan: Any) -> Any:  # noqa: ANN401
        """The plan over `plan`."""
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
        """What it unfolds is tried as well; a record of which that fails gets one row, as OUTER gives to those with nothing to unfold.

        Of functions that make rows in other ways, a failure stays one: the query is then run with fewer records, to the one that does it.
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
