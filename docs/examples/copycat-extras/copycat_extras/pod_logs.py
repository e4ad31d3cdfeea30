"""Source `pod_logs`: the container logs of one Kubernetes namespace. `source: {type: pod_logs, namespace: payments}`.

It is the agent's own `log_file` with the patterns worked out from the namespace, so rotation, offsets and all else are that one's. A
source from nothing implements `copycat_agent.extending.Source`.
"""

from __future__ import annotations

from typing import Any, Literal

from copycat_agent.extending import SOURCES, Field, Source, SourceKind, SourceOptions

_LOG_FILE = SOURCES["log_file"]


class PodLogsOptions(SourceOptions):
    """Container logs of one Kubernetes namespace on this node."""

    type: Literal["pod_logs"] = Field("pod_logs", description="Container logs of a namespace.")
    namespace: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="The namespace.")
    root: str = Field("/var/log/pods", pattern=r"^/", description="Where the kubelet keeps the logs.")


def as_log_file(options: PodLogsOptions) -> SourceOptions:
    """The same as the agent's own source has it."""
    include = (f"{options.root}/{options.namespace}_*/*/*.log",)
    return _LOG_FILE.options.model_validate({"type": "log_file", "include": include})


def _make(connector: str, options: PodLogsOptions, *rest: Any) -> Source:  # noqa: ANN401 - passed on as it is
    return _LOG_FILE.make(connector, as_log_file(options), *rest)


def _framing(options: PodLogsOptions, *, raw: bool) -> Any:  # noqa: ANN401 - the other source's
    return _LOG_FILE.framing(as_log_file(options), raw=raw)


POD_LOGS = SourceKind(PodLogsOptions, _make, _LOG_FILE.open, _framing)
