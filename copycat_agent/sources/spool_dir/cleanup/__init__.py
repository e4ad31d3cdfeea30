"""What becomes of files of a spool directory that are done: deleted, moved or set aside, never overwriting anything."""
