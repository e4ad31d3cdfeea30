"""Alerts and dashboard ask for metrics and labels that exist, and send people to commands that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from copycat_agent.metrics import PREFIX
from copycat_agent.metrics.families import FAMILIES

PROJECT = Path(__file__).parents[3]
ALERTS = PROJECT / "packaging/prometheus/alerts.yml"
DASHBOARD = PROJECT / "packaging/grafana/copycat.json"

COMMANDS = {"status", "describe", "doctor", "losses", "ctl", "dlq", "top", "check"}
"""Those of `docs/definitions` that help here."""
ADDED_LABELS = {"instance", "job"}
"""What Prometheus adds to every sample."""
_METRIC = re.compile(r"\b(copycat_\w+|process_\w+)(?:\{([^}]*)\})?")


def labels_of_series() -> dict[str, set[str]]:
    """Every series that the agent gives, with its labels."""
    series = {"process_cpu_seconds_total": set[str](), "process_resident_memory_bytes": set[str]()}
    for family in FAMILIES:
        if family.kind == "histogram":
            series[f"{PREFIX}{family.name}_bucket"] = {*family.labels, "le"}
            series |= {f"{PREFIX}{family.name}_{end}": {*family.labels} for end in ("sum", "count")}
        else:
            series[PREFIX + family.name] = {*family.labels}
    return series


def complaints(expr: str) -> list[str]:
    """What an expression asks for that is not there."""
    series, found = labels_of_series(), []
    present: set[str] = set(ADDED_LABELS)
    for name, matchers in _METRIC.findall(expr):
        wanted = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        if name not in series:
            found.append(f"no metric {name}")
            continue
        present |= series[name]
        found += [f"{name} has no label {label}" for label in sorted(wanted - series[name] - ADDED_LABELS)]
    for grouping in re.findall(r"\bby \(([^)]*)\)", expr):
        found += [f"nothing here has label {label}" for label in grouping.replace(" ", "").split(",") if label not in present]
    return found


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return found


def queries() -> list[tuple[str, str]]:
    """Panel and expression, the variables' included."""
    variables = json.loads(DASHBOARD.read_text("utf-8"))["templating"]["list"]
    asked = [(one["name"], one["query"]["query"]) for one in variables if one["type"] == "query"]
    return asked + [(panel["title"], target["expr"]) for panel in panels() for target in panel.get("targets", [])]


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_what_exists_and_names_a_command(rule: dict[str, Any]) -> None:
    assert complaints(rule["expr"]) == []
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"page", "ticket"}
    text = rule["annotations"]["summary"] + rule["annotations"]["description"]
    named = {command for command in re.findall(r"\bcopycat ([a-z]+)\b", rule["annotations"]["description"]) if command != "on"}
    assert named <= COMMANDS
    assert named or "systemctl" in text
    available = {label for name, _ in _METRIC.findall(rule["expr"]) for label in labels_of_series()[name]} | ADDED_LABELS
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= available


def test_every_alert_is_documented_with_its_severity() -> None:
    documented = re.findall(r"^\| `(Copycat\w+)` \| .* \| (\w+) \|$", (PROJECT / "docs/metrics.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(documented) == sorted((rule["alert"], rule["labels"]["severity"]) for rule in alerts())


@pytest.mark.parametrize(("where", "expr"), queries())
def test_a_panel_asks_for_what_exists(where: str, expr: str) -> None:
    assert _METRIC.search(expr), where
    assert complaints(expr) == []


def test_the_dashboard_has_its_rows_and_no_two_panels_overlap() -> None:
    assert [one["title"] for one in panels() if one["type"] == "row"] == [
        "Delivery",
        "Lag",
        "Errors",
        "Files",
        "Kafka",
        "Agent",
        "Exactly once",
    ]
    assert len({one["id"] for one in panels()}) == len(panels())
    cells = [
        (x, y)
        for place in (one["gridPos"] for one in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for _, expr in queries() for name, _ in _METRIC.findall(expr)}
    left_out = {PREFIX + "records_read_total", PREFIX + "last_acknowledged_timestamp_seconds"}  # for alerts and for queries by hand
    names = {PREFIX + one.name + ("_bucket" if one.kind == "histogram" else "") for one in FAMILIES}
    assert names - shown == left_out


@pytest.mark.parametrize(
    ("expr", "complaint"),
    [
        ("copycat_lag_bites > 0", "no metric copycat_lag_bites"),
        ('copycat_lag_bytes{path="x"}', "copycat_lag_bytes has no label path"),
        ("sum by (topic) (copycat_lag_bytes)", "nothing here has label topic"),
        ("rate(copycat_commit_seconds[5m])", "no metric copycat_commit_seconds"),
    ],
)
def test_the_checker_finds_each_kind_of_mistake(expr: str, complaint: str) -> None:
    assert complaints(expr) == [complaint]
