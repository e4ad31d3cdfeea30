"""Kafka Connect's REST API for the agent: `rest_app` takes requests, views answer them, `flat_config` shows definitions in Connect's form.

The answers are those of Connect 4.1: their form, statuses and messages. `tests/scenarios/test_connect_rest.py` compares them with a real
worker; `docs/api.md` lists intended differences with their reasons.
"""
