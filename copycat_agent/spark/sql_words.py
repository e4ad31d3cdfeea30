"""Messages about refused queries, by the parts of Spark's plans and expressions, and about Spark's errors."""

from __future__ import annotations

import re

ROW_WISE = "a query sees each record for itself: select, filter and explode; do the rest where the topic is read"

PLANS = {
    "Aggregate": "it groups records or counts over them (GROUP BY, DISTINCT, or count, sum, max ...)",
    "Distinct": "it compares records with each other (DISTINCT)",
    "Deduplicate": "it compares records with each other (DISTINCT)",
    "Sort": "it sorts records (ORDER BY, SORT BY)",
    "GlobalLimit": "it takes the first records only (LIMIT)",
    "LocalLimit": "it takes the first records only (LIMIT)",
    "UnresolvedLimit": "it takes the first records only (LIMIT)",
    "Tail": "it takes the last records only",
    "Offset": "it leaves out the first records (OFFSET)",
    "Sample": "it takes a sample (TABLESAMPLE); the step sample does that, and takes the same records when they are read again",
    "Join": "it joins tables (JOIN, or several tables in FROM)",
    "LateralJoin": "it joins tables (JOIN LATERAL, a function in FROM); LATERAL VIEW explode(...) is the way to many rows",
    "AsOfJoin": "it joins tables (JOIN)",
    "Union": "it puts results one behind the other (UNION)",
    "Except": "it compares results (EXCEPT)",
    "Intersect": "it compares results (INTERSECT)",
    "Window": "it uses a window function (OVER)",
    "WithWindowDefinition": "it uses a window function (WINDOW)",
    "Repartition": "it spreads records anew (a hint, or DISTRIBUTE BY)",
    "RepartitionByExpression": "it spreads records anew (DISTRIBUTE BY, CLUSTER BY, or a hint)",
    "RebalancePartitions": "it spreads records anew (a hint)",
    "UnresolvedHint": "it holds a hint (/*+ ... */)",
    "ScriptTransformation": "it runs a program (TRANSFORM ... USING)",
    "Pivot": "it turns records into columns (PIVOT)",
    "UnresolvedPivot": "it turns records into columns (PIVOT)",
    "Unpivot": "it turns columns into records (UNPIVOT); LATERAL VIEW stack(...) does that",
    "UnpivotTransformer": "it turns columns into records (UNPIVOT); LATERAL VIEW stack(...) does that",
    "UnresolvedTableValuedFunction": "it reads from a function; only the table records can be read",
    "OneRowRelation": "it reads no table: write FROM records",
    "LocalRelation": "it reads values of its own (VALUES); only the table records can be read",
    "UnresolvedInlineTable": "it reads values of its own (VALUES); only the table records can be read",
    "PlanWithUnresolvedIdentifier": "it names its table by an expression (IDENTIFIER)",
    "RelationTimeTravel": "it reads a table of an earlier time",
    "MapInArrow": "it runs a function of Python",
    "Range": "it reads from a function; only the table records can be read",
}
"""Nodes of plans that are not row-wise, with messages for the query's author."""

EXPRESSIONS = {
    "CallMethodViaReflection": "it calls methods of Java (reflect, java_method)",
    "TryReflect": "it calls methods of Java (try_reflect)",
    "WindowExpression": PLANS["Window"],
    "AggregateExpression": PLANS["Aggregate"],
    "PythonUDF": "it runs a function of Python",
    "ScalaUDF": "it runs a function that is not Spark's own",
    "MonotonicallyIncreasingID": "monotonically_increasing_id() would begin anew with every batch; {@offset} names a record for good",
    "SparkPartitionID": "spark_partition_id() says nothing here",
    "InputFileName": "input_file_name() says nothing here; {@file.path} does, in record.headers or the step set",
    "InputFileBlockStart": "input_file_block_start() says nothing here; {@offset} does, in record.headers or the step set",
    "InputFileBlockLength": "input_file_block_length() says nothing here",
}
"""Expressions that are refused."""

FUNCTIONS = {
    "reflect": EXPRESSIONS["CallMethodViaReflection"],
    "java_method": EXPRESSIONS["CallMethodViaReflection"],
    "try_reflect": EXPRESSIONS["TryReflect"],
    "window": "window() leaves out records without a time; date_trunc and arithmetic on the time do not",
    "session_window": "session_window() groups records",
}
"""Functions that are refused by name, before Spark analyses them."""

RANDOM = "{}() gives the same values with every batch, so they are not what they look like, and others when a record is read again"
NO_RANDOM = (
    "name a record by {@file.path} and {@offset} instead, in record.key, record.headers or the step set; the step sample takes a part"
)
SUBQUERY = "it holds a query within an expression (IN (SELECT ...), EXISTS, or a value)"
TABLE = "it reads {}; only the table records can be read"
COMMAND = "it is no SELECT over records ({})"

CONDITIONS = {
    "CAST_INVALID_INPUT": "a CAST of a text that cannot be read; try_cast gives null instead",
    "CAST_OVERFLOW": "a CAST of a number that is too large; try_cast gives null instead",
    "DIVIDE_BY_ZERO": "a division by zero; try_divide gives null instead",
    "ARITHMETIC_OVERFLOW": "a result that its type cannot hold; try_add, try_multiply ... give null instead",
    "INVALID_ARRAY_INDEX": "an index beyond the end of an array; get(array, n) gives null instead",
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": "an index beyond the end of an array; try_element_at gives null instead",
    "CANNOT_PARSE_TIMESTAMP": "a text that is no time; try_to_timestamp gives null instead",
    "INVALID_URL": "a text that is no URL; try_parse_url gives null instead",
    "NUMERIC_VALUE_OUT_OF_RANGE": "a number that its type cannot hold",
    "USER_RAISED_EXCEPTION": "raise_error or assert_true",
    "OUT_OF_MEMORY": "it takes more memory than there is (spark.driver_memory, of an executor spark.executor.memory)",
    "MALFORMED_RECORD_IN_PARSING": "a text that from_json or from_csv cannot read in mode FAILFAST",
}
"""Spark's error conditions that single records cause."""

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)*)\]")
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_NO_MEMORY = re.compile(r"\bjava\.lang\.OutOfMemoryError\b")
_DATA_STATES = ("22", "P0", "21", "23", "38")
"""Beginnings of SQLSTATEs of errors that data cause, by the SQL standard and Spark's table of errors."""


class QueryFailedError(Exception):
    """A job failed because its query fails for some record. `condition` is Spark's name of the error."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


def condition_of(text: str) -> str:
    """Returns Spark's name of an error that a record's data cause; "" for any other error."""
    condition, state = _CONDITION.search(text), _STATE.search(text)
    if condition is None:
        return "OUT_OF_MEMORY" if _NO_MEMORY.search(text) else ""
    known = condition[1].partition(".")[0] in CONDITIONS
    return condition[1] if known or (state is not None and state[1].startswith(_DATA_STATES)) else ""


def condition_words(condition: str) -> str:
    """Returns the meaning of a condition."""
    return CONDITIONS.get(condition.partition(".")[0], f"Spark's error {condition}")


def refusal_words(text: str) -> str:
    """Returns one line of Spark's error about a query: the message and the place, without the plan."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", line)
    line = re.sub(r"\s*SQLSTATE: [0-9A-Z]{5}\.?", "", line)
    line = re.sub(r";?\s*'?(?:Project|Filter|Generate|Aggregate|Sort|GlobalLimit|SubqueryAlias)\b.*$", "", line)
    place = re.search(r"line (\d+),? pos(?:ition)? (\d+)", text)
    line = re.sub(r"\s*[;(]?\s*line \d+,? pos(?:ition)? \d+\)?;?", "", line).strip().rstrip(";.")
    return f"{line} (line {place[1]}, character {int(place[2]) + 1} of the query)" if place else line
