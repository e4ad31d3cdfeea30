"""The certificates that a registry is checked against, and the one that it is shown."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.options import SchemaRegistryOptions


class CertificateError(Exception):
    """A file that cannot be used. `option` says which; the text holds no secret."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"{option}: {why}")
        self.option = option
        self.why = why


def tls_context(options: SchemaRegistryOptions) -> ssl.SSLContext:
    """For one connection or more. Without `ca_file` the host's own authorities, as for Kafka. Raises CertificateError."""
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except ssl.SSLError:
        raise CertificateError("ca_file", f"{options.ca_file} holds no certificates (PEM)") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a file name"
        raise CertificateError("ca_file", f"{options.ca_file} cannot be read: {why}") from None
    if options.cert_file is not None:
        password = options.key_password.get_secret_value() if options.key_password else ""
        try:
            context.load_cert_chain(options.cert_file, options.key_file, lambda: password)  # without one OpenSSL would ask a terminal
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or "not PEM, or another key"
            raise CertificateError("cert_file", f"{options.cert_file} and its key cannot be used: {why}") from None
    return context
