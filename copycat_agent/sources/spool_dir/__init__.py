"""Source `spool_dir`: files that are dropped into a directory, whole, and read once."""
