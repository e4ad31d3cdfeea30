"""A real browser: Debian's Chromium without a window, told what to do in the WebDriver protocol. Tests without it are skipped."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

from copycat_agent.dev_broker import free_port
from tests.rig.waiting import wait_until

PROGRAMS = ("chromium", "chromedriver")
MISSING = "no Chromium: apt-get install --no-install-recommends chromium chromium-driver fonts-dejavu-core"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_SECONDS = 60.0
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", "--disable-lcd-text", "--disable-component-update", "--no-proxy-server")  # fmt: skip


def is_there() -> bool:
    """Whether the browser and its driver are installed."""
    return all(map(shutil.which, PROGRAMS))


class Browser:
    """One window with a profile of its own below `directory`. A context manager: nothing of it is left behind."""

    def __init__(self, directory: Path) -> None:
        self._port = free_port()
        log = directory / "chromedriver.log"
        command = [str(shutil.which("chromedriver")), f"--port={self._port}", f"--log-path={log}"]
        self._driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(self._is_ready, _SECONDS)
            arguments = [*_OPTIONS, f"--user-data-dir={directory / 'profile'}"]
            wanted = {
                "goog:chromeOptions": {"args": arguments, "binary": shutil.which("chromium")},
                "goog:loggingPrefs": {"browser": "ALL"},
            }
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._driver.kill()
            self._driver.wait()
            raise
        self._session = f"/session/{made['sessionId']}"

    def open(self, address: str) -> None:
        """Go there, and wait until it is loaded."""
        self._tell("/url", {"url": address})

    def run(self, script: str, *arguments: object) -> Any:
        """Returns what the body of a function returns in the page; `arguments[0]` is the first one."""
        return self._tell("/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "body") -> str:
        """The text of the first element as it is shown, "" where there is none, or another page is about to come."""
        try:
            return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))
        except AssertionError:
            return ""

    def click(self, selector: str) -> None:
        """Wait for the element, and click it, wherever it is scrolled to. What that leads to has to be waited for."""
        wait_until(lambda: self._clicked(selector), _SECONDS)

    def type(self, selector: str, keys: str) -> None:
        """Keys into an element; `body` for none in particular."""
        self._tell(f"/element/{self._find(selector)}/value", {"text": keys})

    def press(self, key: str) -> None:
        """One key, wherever the focus is."""
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._tell("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def devtools(self, command: str, **values: object) -> Any:
        """A command of Chromium's own protocol, for what WebDriver cannot say: a scheme of colours, a header, a small screen."""
        return self._tell("/goog/cdp/execute", {"cmd": command, "params": values})

    def screen(self, width: int, height: int, *, dark: bool = False) -> None:
        """Its size in CSS pixels, and what the system prefers."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """What is to be seen now, as PNG."""
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))

    def complaints(self) -> list[str]:
        """What the browser has said since the last call: errors of scripts, refusals of the policy, files that did not load."""
        return [str(one["message"]) for one in self._tell("/se/log", {"type": "browser"})]

    def close(self) -> None:
        """End it."""
        try:
            self._ask("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_ready(self) -> bool:
        try:
            return bool(self._ask("GET", "/status")["ready"])
        except OSError:
            return False

    def _clicked(self, selector: str) -> bool:
        script = "const one = document.querySelector(arguments[0]); if (one) setTimeout(() => one.click()); return one !== null"
        try:
            return bool(self.run(script, selector))
        except AssertionError:
            return False

    def _find(self, selector: str) -> str:
        return str(self._tell("/element", {"using": "css selector", "value": selector})[_ELEMENT])

    def _tell(self, path: str, values: object) -> Any:
        return self._ask("POST", self._session + path, values)

    def _ask(self, method: str, path: str, values: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)
        try:
            body = None if values is None else json.dumps(values)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            msg = f"{path}: {answer['error']}: {answer['message']}"
            raise AssertionError(msg)
        return answer
