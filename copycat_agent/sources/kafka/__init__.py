"""Source `kafka`: records of topics, of this cluster or of another."""
