"""TLS of the port: our certificate and key, as they are on disk now."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from copycat_agent.api.renewed import Renewed
from copycat_agent.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Callable


def contexts(cert_file: str, key_file: str) -> Callable[[], ssl.SSLContext]:
    """Call it for the context of a new connection. Raises FatalError when the files cannot be used."""
    return Renewed((cert_file, key_file), lambda: _context(cert_file, key_file))


def _context(cert_file: str, key_file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except (OSError, ValueError) as error:
        why = (error.reason if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)) or "it cannot be read"
        words = f"api.tls: the certificate {cert_file} with the key {key_file} cannot be used: {why}"
        hint = "both are PEM files that the agent's user may read, the key without a password; the certificate first, then its chain"
        raise FatalError(words, hint) from None
    return context


def _no_password() -> str:
    """An agent has nobody to ask."""
    raise ValueError("the key is encrypted")
