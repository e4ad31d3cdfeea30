"""Backfill: files read once, to their end, with an account of every record.

`path_runs` expands PATHs and keeps the state of runs on disk, `delivered` finds what Kafka has of the files already, `path_source` is the
source that reads them, `backfill` wires a run together, `summary` is its account, `dry_run` estimates it beforehand.
"""
