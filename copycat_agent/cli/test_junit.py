"""The outcome of tests as JUnit XML, the form that every CI system reads."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime

from copycat_agent.cli.test_view import Tested, failures
from copycat_agent.workbench.trying import CaseOutcome

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(tested: Sequence[Tested]) -> bytes:
    """One `testsuite` per definition, one `testcase` per test with its file and line; a definition that does not load is an error."""
    root = ET.Element("testsuites", name="copycat test")
    stamp = datetime.now(UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    for one in tested:
        suite = ET.SubElement(root, "testsuite", name=_text(one.name), timestamp=stamp)
        for outcome in one.outcomes:
            _case(suite, one, outcome)
        for problem in one.problems[:1]:
            case = _element(suite, one, "definition", problem.line, 0.0)
            words = [f"{each.path}:{each.line}:{each.column}: {each.text}" for each in one.problems]
            ET.SubElement(case, "error", type="DefinitionError", message=_text(problem.text)).text = _text("\n".join(words))
        _add_up(suite, one)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _case(suite: ET.Element, one: Tested, outcome: CaseOutcome) -> None:
    case = _element(suite, one, outcome.name, one.line(outcome), outcome.seconds)
    if outcome.good:
        return
    told = [line.plain for line in failures(one, outcome)]
    kind = "error" if outcome.error is not None else "failure"
    name = type(outcome.error).__name__ if outcome.error is not None else "Mismatch"
    ET.SubElement(case, kind, type=name, message=_text(told[0])).text = _text("\n".join((one.place(outcome), *told)))


def _element(suite: ET.Element, one: Tested, name: str, line: int, seconds: float) -> ET.Element:
    where = {"file": _text(str(one.path)), "line": str(line)}
    return ET.SubElement(suite, "testcase", {"name": _text(name), "classname": _text(one.name), **where, "time": f"{seconds:.3f}"})


def _add_up(suite: ET.Element, one: Tested) -> None:
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", "0")
    suite.set("time", f"{sum(outcome.seconds for outcome in one.outcomes):.3f}")


def _text(text: str) -> str:
    """What XML can hold of it."""
    return _NOT_XML.sub("\ufffd", text)
