"""What is saved of files that nobody follows (any more), and when it is forgotten."""
