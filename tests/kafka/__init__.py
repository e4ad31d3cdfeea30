"""Source `kafka`: topics of a real broker, read and copied by the real agent."""
