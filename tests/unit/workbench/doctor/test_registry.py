"""Promises of the doctor about schema registries: the first layer that fails explains the rest, with its fix."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from copycat_agent.definitions import load_file
from copycat_agent.dev_broker import free_port
from copycat_agent.options import AgentOptions
from copycat_agent.workbench.doctor.registry_checks import examine_registries, registries
from tests.rig.registry import RegistryFront, SchemaRegistry

if TYPE_CHECKING:
    from pathlib import Path

RECORD = {"type": "record", "name": "R", "fields": [{"name": "message", "type": "string"}]}


def look(tmp_path: Path, url: str, value: dict[str, Any], topic: str = "t", **registry: Any) -> dict[str, tuple[str, str, str]]:
    """(verdict, text, fix) by the name of the step."""
    document = {
        "name": "a", "source": {"type": "log_file", "include": ["/l/*"]}, "record": {"topic": topic},
        "converters": {"value": value, "schema_registry": {"url": url, **registry}},
    }  # fmt: skip
    (tmp_path / "a.yaml").write_text(json.dumps(document))
    loaded = load_file(tmp_path / "a.yaml", AgentOptions())
    assert loaded.definition is not None, loaded.problems
    steps = examine_registries(registries([loaded.definition]))
    assert all(step.section == f"schema registry {url}" for step in steps)
    return {step.name: (str(step.verdict), step.text, step.fix) for step in steps}


def test_a_registry_is_looked_at_from_its_name_to_the_schema(schema_registry: SchemaRegistry, tmp_path: Path) -> None:
    subject = f"s-{uuid.uuid4().hex}"
    missing = look(tmp_path, schema_registry.url, {"type": "avro", "subject": subject})
    assert (missing["dns"][0], missing["tcp"][0]) == ("ok", "ok")
    assert missing["subject"][0] == "fail"
    assert "does not have subject" in missing["subject"][1]
    assert "register the schema" in missing["subject"][2]
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        client.register_schema(subject, Schema(json.dumps(RECORD), "AVRO"))
        assert "version 1" in look(tmp_path, schema_registry.url, {"type": "avro", "subject": subject})["subject"][1]
        client.set_compatibility(subject, "BACKWARD")
        (tmp_path / "r.avsc").write_text(json.dumps({**RECORD, "fields": [*RECORD["fields"], {"name": "x", "type": "int", "default": 1}]}))
        wanted = {"type": "avro", "subject": subject, "auto_register": True, "schema": str(tmp_path / "r.avsc"), "extra_fields": "drop"}
        assert "can be registered" in look(tmp_path, schema_registry.url, wanted)["subject"][1]
        (tmp_path / "r.avsc").write_text(json.dumps({**RECORD, "fields": [{"name": "message", "type": "int"}]}))
        assert "cannot become the next version" in look(tmp_path, schema_registry.url, wanted)["subject"][1]
        assert client.get_versions(subject) == [1], "an examination registers nothing"


def test_a_login_a_port_and_a_name_that_are_wrong(schema_registry: SchemaRegistry, tmp_path: Path) -> None:
    with RegistryFront(schema_registry.url, ("me", "s3cret")) as front:
        found = look(tmp_path, front.url, {"type": "avro"}, basic_auth={"username": "me", "password": "s3cret-other"})
    assert (found["login"][0], "basic_auth" in found["login"][2]) == ("fail", True)
    assert "s3cret" not in str(found)
    down = look(tmp_path, f"http://127.0.0.1:{free_port()}", {"type": "avro"})
    assert (down["tcp"][0], down["subjects"][0]) == ("fail", "skip")
    assert "is it up?" in down["tcp"][2]
    plain = look(tmp_path, schema_registry.url.replace("http:", "https:"), {"type": "avro"})
    assert (plain["tls"][0], "write http://" in plain["tls"][2]) == ("fail", True)


def test_what_only_data_tells_is_not_looked_at(schema_registry: SchemaRegistry, tmp_path: Path) -> None:
    assert look(tmp_path, schema_registry.url, {"type": "avro"}, topic="t.{level}")["subject"][0] == "skip"
