"""Options of source `datasource`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.options import Duration, Field, ScalarText
from copycat_agent.sources.contract import PolledOptions


class DataSourceOptions(PolledOptions):
    """Any stream reader that implements PySpark's `pyspark.sql.datasource`.

    Its records have the fields of its schema. What it has between two of its offsets goes as one batch, and with exactly_once as one
    transaction; after a failure it is asked for anew.
    """

    type: Literal["datasource"] = Field("datasource", description="A stream reader of PySpark's data source interface.")
    class_: str = Field(
        alias="class",
        pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,200}:[A-Za-z_][A-Za-z0-9_]{0,100}$",
        description="Module and class, as in package.module:Class, derived from pyspark.sql.datasource.DataSource. Installed for the "
        "Python that runs the agent.",
    )
    options: dict[str, ScalarText] = Field({}, description="Options of the data source, as `.option(name, value)` gives them in Spark.")
    replayable: bool = Field(
        False,
        description="true: the reader gives the same records in the same order for the same two offsets, always. Then what lies between "
        "them may be sent in several batches.",
    )
    timeout: Duration = Field(
        60.0, ge=1, le=3600, description="What plans the reads (initialOffset, latestOffset, partitions, commit) is killed after so long."
    )
