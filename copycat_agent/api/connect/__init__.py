"""Kafka Connect's REST API over the agent: `rest_app` takes requests, views answer them, `flat_config` is a definition as Connect has it.

What Connect 4.1 answers is the contract: shapes, statuses, words. `tests/scenarios/test_connect_rest.py` asks a real worker the same; what
differs on purpose is in `docs/api.md` with its reason.
"""
