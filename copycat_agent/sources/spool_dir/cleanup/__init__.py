"""Cleanup of a spool directory's finished files: they are deleted, moved or set aside, and nothing is ever overwritten."""
