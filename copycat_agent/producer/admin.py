"""An admin client with deadlines: one request at a time; a time-out is explained by the latest connection error."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import classify, creation_error, with_trouble
from copycat_agent.producer.settings import client_settings, invalidate_token

ANSWER_SECONDS = 10.0
"""How long a cluster may take to answer, connecting included."""
_LOOK_SECONDS = 0.02

Question = Callable[[AdminClient], "Future[Any]"]


class Admin:
    """An `AdminClient` that is created by the first request. Used from one thread at a time."""

    def __init__(self, options: KafkaOptions, client_id: str = "", *, stopping: Callable[[], bool]) -> None:
        self._options = options
        self._client_id = client_id
        self.stopping = stopping
        self.servers = ",".join(options.bootstrap_servers)
        self.trouble: KafkaError | None = None
        """The latest error of the client's connections; that of a refusal stays."""
        self._client: AdminClient | None = None

    def ask(self, question: Question, seconds: float | None = None) -> Any:  # noqa: ANN401 - the library's
        """Returns the answer to one request. Waits for `seconds`, by default `ANSWER_SECONDS` and one more.

        Raises KafkaException for an error in the answer; RetriableError without an answer, BlockedError if this client is refused.
        """
        try:
            return self._answer(question, seconds or ANSWER_SECONDS + 1)
        except Exception as exception:  # noqa: BLE001 - it is raised again
            # Not with its frames, which hold the client: should they be collected on the client's own thread, the library aborts the
            # process. The same with frames that hold this object, hence `close` is for everybody who makes one.
            failure = exception.with_traceback(None)
        try:
            raise failure
        finally:
            del failure

    def _answer(self, question: Question, seconds: float) -> Any:  # noqa: ANN401 - the library's
        client = self._made()
        answer = question(client)
        deadline = time.monotonic() + seconds
        while not wait([answer], _LOOK_SECONDS).done:
            client.poll(0)
            refused = self.trouble is not None and classify(self.trouble) is BlockedError
            if refused or self.stopping() or time.monotonic() > deadline:
                trouble = self.trouble
                self.close()  # the next request connects again: what was refused may be allowed by then
                words = f"stopped before {self.servers} had answered" if self.stopping() else f"no broker answers at {self.servers}"
                raise with_trouble(RetriableError(words), trouble)
        return answer.result()

    def close(self) -> None:
        """Closes the client; the next request creates another."""
        self._client = None

    def _made(self) -> AdminClient:
        if self._client is None:
            self.trouble = None
            settings: dict[str, Any] = {**client_settings(self._options), "error_cb": self.on_client_error}
            if self._client_id:
                settings["client.id"] = self._client_id
            try:
                self._client = AdminClient(settings)
            except KafkaException as exception:
                raise creation_error(exception.args[0]) from None
        return self._client

    def on_client_error(self, error: KafkaError) -> None:
        """Notes an error of one of the client's connections."""
        invalidate_token(self._options, error)
        if self.trouble is None or classify(error) is BlockedError:
            self.trouble = error
