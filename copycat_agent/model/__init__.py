"""The nouns of the pipeline: frozen values without behaviour, all of them picklable.

A *connector* has up to `tasks_max` *tasks*. A task owns *partitions* (here: files). The driver plans *splits* (a stretch of
one partition) from committed *offsets*, sends them to a runner as one *batch* per task, and gets one *split result* for each.
"""

from copycat_agent.model.accounts import Account, AccountState, Counts, Delivered, Loss, LossReason, LossTotal, Rejection, StepFailure
from copycat_agent.model.batches import (
    AT_LEAST_ONCE,
    AtLeastOncePlan,
    Batch,
    BrokerView,
    ClientView,
    DeliveryPlan,
    Sample,
    Split,
    SplitResult,
    Stretch,
)
from copycat_agent.model.lanes import (
    OFFSETS_TOPIC,
    Head,
    LaneId,
    LaneOutcome,
    LanePlan,
    LaneState,
    Place,
    Position,
    connector_id_of,
    is_connector_id,
    new_connector_id,
)
from copycat_agent.model.offsets import Fingerprint, Reduced, SourceOffset, SourcePartition, TaskId
from copycat_agent.model.records import Column, Record, Schema

__all__ = [
    "AT_LEAST_ONCE",
    "OFFSETS_TOPIC",
    "Account",
    "AccountState",
    "AtLeastOncePlan",
    "Batch",
    "BrokerView",
    "ClientView",
    "Column",
    "Counts",
    "Delivered",
    "DeliveryPlan",
    "Fingerprint",
    "Head",
    "LaneId",
    "LaneOutcome",
    "LanePlan",
    "LaneState",
    "Loss",
    "LossReason",
    "LossTotal",
    "Place",
    "Position",
    "Record",
    "Reduced",
    "Rejection",
    "Sample",
    "Schema",
    "SourceOffset",
    "SourcePartition",
    "Split",
    "SplitResult",
    "StepFailure",
    "Stretch",
    "TaskId",
    "connector_id_of",
    "is_connector_id",
    "new_connector_id",
]
