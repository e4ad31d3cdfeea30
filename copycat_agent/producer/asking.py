"""A client that asks and administers: one answer at a time, heard within a deadline, with the words of the connection that failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.outcomes import classify, not_made, with_trouble
from copycat_agent.producer.settings import client_settings, distrust_token

if TYPE_CHECKING:
    from concurrent.futures import Future

ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 0.02


class Admin:
    """An `AdminClient` that is made with the first question. From one thread at a time."""

    def __init__(self, options: KafkaOptions, client_id: str, stopping: Callable[[], bool]) -> None:
        self._options = options
        self._client_id = client_id
        self._stopping = stopping
        self._client: AdminClient | None = None
        self._trouble: KafkaError | None = None

    def ask(self, question: Callable[[AdminClient], Future[Any]]) -> Any:  # noqa: ANN401 - the library's
        """The answer to one request.

        Raises KafkaException for one that says no; RetriableError when none comes, or BlockedError when this client is refused.
        """
        try:
            return self._answer(question)
        except Exception as exception:  # noqa: BLE001 - it is raised again
            # Not with its frames, which hold the client: should they be collected on the client's own thread, the library aborts the
            # process. The same with frames that hold this object, hence `close` is for everybody who makes one.
            failure = exception.with_traceback(None)
        try:
            raise failure
        finally:
            del failure

    def _answer(self, question: Callable[[AdminClient], Future[Any]]) -> Any:  # noqa: ANN401 - the library's
        client = self._made()
        answer = question(client)
        deadline = time.monotonic() + ANSWER_SECONDS + 1
        while not wait([answer], _LOOK_SECONDS).done:
            client.poll(0)
            refused = self._trouble is not None and classify(self._trouble) is BlockedError
            if refused or self._stopping() or time.monotonic() > deadline:
                trouble = self._trouble
                self.close()  # a new one asks anew: what was refused may be mended by then
                servers = ",".join(self._options.bootstrap_servers)
                words = f"stopped before {servers} had answered" if self._stopping() else f"no broker answers at {servers}"
                raise with_trouble(RetriableError(words), trouble)
        return answer.result()

    def close(self) -> None:
        """Free the client."""
        self._client = None

    def _made(self) -> AdminClient:
        if self._client is None:
            self._trouble = None
            settings: dict[str, Any] = {**client_settings(self._options), "client.id": self._client_id, "error_cb": self._on_error}
            try:
                self._client = AdminClient(settings)
            except KafkaException as exception:
                raise not_made(exception.args[0]) from None
        return self._client

    def _on_error(self, error: KafkaError) -> None:
        distrust_token(self._options, error)
        if self._trouble is None or classify(error) is BlockedError:
            self._trouble = error
