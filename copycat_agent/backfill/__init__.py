"""Backfill: files read once, to their end, with an account of every record.

`path_runs` says which files are meant and keeps what a run knows on disk, `delivered` says what of them Kafka has already, `given` is the
source that reads them, `backfill` wires a run together, `summary` is its account, `dry_run` says beforehand what it would do.
"""
