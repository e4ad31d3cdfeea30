"""What `copycat demo` shows: made-up logs that grow and rotate, the definitions that ship them, and the proof afterwards."""

from __future__ import annotations

import json
from pathlib import Path

from copycat_agent.demo.traffic import Proof, Traffic, prove

__all__ = ["TOPICS", "Proof", "Traffic", "prove", "write_definitions"]

TOPICS = {"web-access": "demo.web", "app-events": "demo.app"}
"""Connector -> the topic it fills."""

_WEB = """\
# Access logs. One partition, so that the order of each log shows; rotated files (shop.log.1, ...) belong to their log.
name: web-access

source:
  type: log_file
  include: [{include}]
  rotate_wait: 30s

record:
  topic: demo.web
  key: "{{@file.name}}"
  headers: {{host: "{{@host}}"}}
  origin_headers: true                # copycat.file, copycat.offset, copycat.end

kafka:
  create_topics: {{partitions: 1}}
"""

_APP = """\
# JSON lines, as they are: nothing is parsed that nobody asks for.
name: app-events

source:
  type: log_file
  include: [{include}]
  rotate_wait: 30s

record:
  topic: demo.app

kafka:
  create_topics: {{partitions: 1}}
"""


def write_definitions(directory: Path, logs: Path, bootstrap: str) -> Path:
    """Write `agent.yaml` and `connectors.d/` below `directory`, for the logs below `logs`; returns the path of `connectors.d`."""
    connectors = directory / "connectors.d"
    connectors.mkdir(parents=True)
    (directory / "agent.yaml").write_text(f"kafka:\n  bootstrap_servers: [{json.dumps(bootstrap)}]\n", "utf-8")
    for name, text, pattern in (("web-access", _WEB, "web/*.log*"), ("app-events", _APP, "app/*.log*")):
        (connectors / f"{name}.yaml").write_text(text.format(include=json.dumps(f"{logs}/{pattern}")), "utf-8")
    return connectors
