"""OAuth access tokens, one per process and login: for Kafka's clients and the schema registry's."""

from __future__ import annotations

from copycat_agent.oauth.needs import token_problems
from copycat_agent.oauth.token_cache import Tokens, tokens_of
from copycat_agent.oauth.token_requests import where_of

__all__ = ["KAFKA_OAUTH", "REGISTRY_OAUTH", "Tokens", "token_problems", "tokens_of", "where_of"]

KAFKA_OAUTH, REGISTRY_OAUTH = "kafka.security.oauth", "converters.schema_registry.oauth"
"""Dotted options under which logins stand."""
