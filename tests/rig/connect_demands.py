"""What programs demand of answers of Kafka Connect's REST API: what is something else, they show as an error, or not at all.

Each demand is the strictest of these three:

- kafka-ui of Kafbat, by its contract (`kafka-connect-api.yaml`, Apache-2.0): a word that an enumeration lacks fails the whole answer, and a
  listing that fails is a page without connectors.
- Redpanda Console, by the structs of its client (cloudhut/connect-client): text is read from text alone and an int from a whole number; an
  error without an `error_code` is an unknown one.
- kcctl, by its records (`org.kcctl.service`), read by Jackson.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

_Text = dict[str, str]
_State = Literal["RUNNING", "FAILED", "PAUSED", "RESTARTING", "UNASSIGNED"]


class _Demand(BaseModel):
    model_config = ConfigDict(strict=True)


class Worker(_Demand):
    """kafka-ui and Redpanda Console show null as nothing."""

    version: str
    commit: str
    kafka_cluster_id: str | None


class Task(_Demand):
    connector: str
    task: int


class Info(_Demand):
    name: str
    config: _Text
    tasks: list[Task]
    type: Literal["source", "sink"]


class ConnectorState(_Demand):
    state: _State | Literal["STOPPED"]
    worker_id: str
    trace: str | None = None


class TaskState(_Demand):
    id: int
    state: _State
    worker_id: str
    trace: str | None = None


class State(_Demand):
    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: Literal["source", "sink"]


class Expanded(_Demand):
    info: Info
    status: State


class TaskConfig(_Demand):
    id: Task
    config: _Text


class Topics(_Demand):
    topics: list[str]


class Offset(_Demand):
    partition: dict[str, Any]
    offset: dict[str, Any]


class Offsets(_Demand):
    offsets: list[Offset]


class Plugin(_Demand):
    name: str = Field(alias="class")
    type: str
    version: str


class Key(_Demand):
    name: str
    type: Literal["BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"]
    required: bool
    default_value: str | None
    importance: Literal["LOW", "MEDIUM", "HIGH"]
    documentation: str
    group: str | None
    width: Literal["SHORT", "MEDIUM", "LONG", "NONE"]
    display_name: str
    dependents: list[str]
    order: int


class KeyValue(_Demand):
    name: str
    value: str | None
    recommended_values: list[str]
    errors: list[str]
    visible: bool


class LookedAt(_Demand):
    definition: Key
    value: KeyValue


class Validated(_Demand):
    name: str
    error_count: int
    groups: list[str]
    configs: list[LookedAt]


class Level(_Demand):
    level: str
    last_modified: int | None


class Message(_Demand):
    message: str


class Error(_Demand):
    error_code: Annotated[int, Field(ge=400)]
    message: str


OF_A_CONNECTOR: dict[str, Any] = {
    "": Info, "/config": _Text, "/status": State, "/tasks": list[TaskConfig], "/topics": dict[str, Topics], "/offsets": Offsets,
}  # fmt: skip
"""What GET answers below `/connectors/NAME`."""
OF_THE_WORKER: dict[str, Any] = {
    "/": Worker, "/connectors": list[str], "/connectors?expand=info&expand=status": dict[str, Expanded], "/connector-plugins": list[Plugin],
    "/connector-plugins?connectorsOnly=false": list[Plugin], "/admin/loggers": dict[str, Level], "/admin/loggers/root": Level,
}  # fmt: skip


def check(demand: Any, answer: object) -> Any:
    """Return the JSON of an answer as what is demanded. ValidationError, with the place, where it is something else."""
    return TypeAdapter(demand).validate_python(answer, strict=True)
