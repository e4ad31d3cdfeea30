"""Backfill: files read once, to their end, with an account of every record.

`paths` says which files are meant, `delivered` what of them Kafka has already, `given` is the source that reads them, `runs` keeps
what a run knows on disk, `backfill` wires a run together, `summary` is its account, `planning` says beforehand what it would do.
"""
