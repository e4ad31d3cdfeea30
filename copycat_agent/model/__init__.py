"""The nouns of the pipeline: frozen values without behaviour, all of them picklable.

A *connector* has up to `tasks_max` *tasks*. A task owns *partitions* (here: files). The driver plans *splits* (a stretch of
one partition) from committed *offsets*, sends them to a runner as one *batch* per task, and gets one *split result* for each.
"""

from copycat_agent.model.batches import *  # noqa: F403 - the package is what its modules define
from copycat_agent.model.records import *  # noqa: F403 - as above
