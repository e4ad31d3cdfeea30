"""What can go wrong between a command and the agent."""

from __future__ import annotations

from copycat_agent.errors import CopycatError


class AgentUnreachableError(CopycatError):
    """No agent answers at this socket: none runs, it runs elsewhere, it is another user's, or it went away."""


class RefusedError(CopycatError):
    """The agent understood nothing it could do with this request: a value is wrong, too large, or of the wrong kind."""


class MissingError(CopycatError):
    """There is nothing at this address."""
