"""Source `log_file`: files that grow, are rotated, cut and deleted."""
