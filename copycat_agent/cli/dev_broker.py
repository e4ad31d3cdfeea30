"""`copycat dev-broker`: a real one-node Kafka for trying things out, until Ctrl-C."""

from __future__ import annotations

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from copycat_agent.dev_broker import KAFKA_VERSION, DevBroker
from copycat_agent.errors import CopycatError


def dev_broker(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = 9092,
    data: Annotated[
        Path | None, typer.Option(help="Directory to keep topics in between runs; without it they are gone at the end.", file_okay=False)
    ] = None,
) -> None:
    """Start a real one-node Kafka on this machine and keep it until Ctrl-C or SIGTERM.

    Kafka is fetched once (43 MB) into ~/.cache/copycat; Java is all it needs. Prints its address when it is ready.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = Console(stderr=True, highlight=False)
    try:
        with ExitStack() as until_end:
            directory = data or Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="copycat-kafka-")))
            broker = DevBroker(directory, port)
            until_end.callback(broker.stop)
            _serve(broker, words)
    except KeyboardInterrupt:
        words.print("stopped")
    except CopycatError as error:
        words.print(f"error: {error}", markup=False)
        raise typer.Exit(1) from error


def _serve(broker: DevBroker, words: Console) -> None:
    """Start, say so, and wait. Leaves by KeyboardInterrupt, or with exit 1 when Kafka ends by itself."""
    words.print(f"starting Kafka {KAFKA_VERSION}, log in {broker.log_path}", markup=False)
    broker.start()
    typer.echo(broker.bootstrap)
    words.print(f"ready: use --bootstrap-servers {broker.bootstrap}; Ctrl-C ends it", markup=False)
    code = broker.wait()
    words.print(f"error: Kafka ended by itself with exit code {code}; read {broker.log_path}", markup=False)
    raise typer.Exit(1)
