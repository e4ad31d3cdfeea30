"""The agent over HTTP: a server on a unix socket (and, for health and metrics, on loopback), and the client of the commands.

`client` needs the standard library only; `server` brings in the HTTP libraries, so it is imported behind the
agent's back (see `serving`).
"""

from __future__ import annotations

from copycat_agent.api.client import AgentClient, AgentUnreachableError, RefusedRequestError, address

__all__ = ["AgentClient", "AgentUnreachableError", "RefusedRequestError", "address"]
