"""A port with the page, over an agent in memory, and a reader of its documents."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

from copycat_agent.api.port_access import line_of
from copycat_agent.api.server import ApiServer
from copycat_agent.dev_broker import free_port
from copycat_agent.options import ApiOptions
from tests.unit.api.conftest import PASSWORD, Answer, basic
from tests.unit.api.doubles import MemoryControl

_EMPTY = frozenset({"meta", "link", "input", "polyline"})


class Read(HTMLParser):
    """A document as a browser has it: `tags` with attributes in their order, `text` without them, `rows` of its tables."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(content.decode())
        self.close()
        assert self._open == [], "every tag has its end"
        self.text = " ".join("".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self._texts.append(f"{data} ")
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] = " ".join(f"{self.rows[-1][-1]} {data}".split())

    def links(self) -> list[str]:
        return [str(given["href"]) for name, given in self.tags if name == "a"]


class PagePort:
    """Any request, as any browser could send it."""

    def __init__(self, server: ApiServer, number: int) -> None:
        self.server, self.number = server, number

    def ask(
        self,
        path: str = "/",
        method: str = "GET",
        context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.number, timeout=150)
            if context is None
            else http.client.HTTPSConnection("localhost", self.number, timeout=150, context=context)
        )
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def read(self, path: str = "/", headers: Mapping[str, str] | None = None) -> Read:
        """What is answered with 200."""
        answer = self.ask(path, headers=headers)
        assert answer.status == 200, answer
        return Read(answer.body)


OpenPage = Callable[..., PagePort]


@pytest.fixture
def open_page(control: MemoryControl, socket_path: Path) -> Iterator[OpenPage]:
    """`open_page(other_control, host="0.0.0.0", users=FILE, tls=...)` starts an agent's API with the page there."""
    with contextlib.ExitStack() as undo:

        def start(shown: MemoryControl = control, host: str = "127.0.0.1", **options: object) -> PagePort:
            number = free_port()
            listen = {"listen": f"{host}:{number}"}
            server = ApiServer(shown, socket_path, ApiOptions.model_validate({"page": listen, **options}))
            server.start()
            undo.callback(server.close)
            return PagePort(server, number)

        yield start


class User:
    """Somebody with a login, and his browser on the page: what he sends says that it comes from there."""

    def __init__(self, page: PagePort, name: str) -> None:
        self.page = page
        self.headers = {"Authorization": basic(name, PASSWORD)}
        self.own = {"Origin": f"http://127.0.0.1:{page.number}", "Sec-Fetch-Site": "same-origin"}

    def read(self, path: str) -> Read:
        return self.page.read(path, self.headers)

    def ask(self, path: str) -> Answer:
        return self.page.ask(path, headers=self.headers)

    def post(self, path: str, headers: Mapping[str, str] | None = None, **fields: str) -> Answer:
        """A form that was sent; from one of our own pages, or with these headers."""
        sent = {**self.headers, "Content-Type": "application/x-www-form-urlencoded", **(self.own if headers is None else headers)}
        return self.page.ask(path, "POST", headers=sent, body=urllib.parse.urlencode(fields).encode())


@pytest.fixture
def with_users(open_page: OpenPage, tmp_path: Path) -> PagePort:
    """A page with two users: `reader`, and `writer`, who may operate."""
    path = tmp_path / "both"
    path.write_text("\n".join((line_of("reader", PASSWORD, 1000), line_of("writer", PASSWORD, 1000, "operate"))))
    return open_page(users=str(path))


@pytest.fixture
def writer(with_users: PagePort) -> User:
    return User(with_users, "writer")


@pytest.fixture
def reader(with_users: PagePort) -> User:
    return User(with_users, "reader")


@pytest.fixture
def page(open_page: OpenPage) -> PagePort:
    return open_page()
