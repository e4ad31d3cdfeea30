"""Moto's S3 server with an atomic put-if-absent: `python s3_server.py PORT`.

Moto looks whether an object is there and stores it in two steps, so that of two concurrent puts with `If-None-Match: *` both may succeed,
as on no real store. Here one PUT at a time is handled, after its body was read: a client that is stopped holds up no other.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class OnePutAtATime:
    """A WSGI application around moto's."""

    def __init__(self) -> None:
        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            answer: Iterable[bytes] = self._app(environ, start_response)
            return answer
        is_terminated = environ.get("wsgi.input_terminated", False)
        body = environ["wsgi.input"].read(*([] if is_terminated else [int(environ.get("CONTENT_LENGTH") or 0)]))
        with self._lock:
            return list(self._app({**environ, "wsgi.input": io.BytesIO(body)}, start_response))


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), OnePutAtATime(), threaded=True, request_handler=MotoRequestHandler)
