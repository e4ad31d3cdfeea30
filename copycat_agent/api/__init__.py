"""The agent over HTTP: a server on a unix socket (and, for health and metrics, on loopback), and the client of the commands.

`client` needs the standard library only; `app` brings in the HTTP libraries, so the server imports it with the first request.
"""

from __future__ import annotations

from copycat_agent.api.client import AgentClient, AgentUnreachableError, RefusedRequestError, address

__all__ = ["AgentClient", "AgentUnreachableError", "RefusedRequestError", "address"]
