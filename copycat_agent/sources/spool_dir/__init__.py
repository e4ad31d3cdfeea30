"""Source `spool_dir`: whole files that are dropped into a directory and read once."""
