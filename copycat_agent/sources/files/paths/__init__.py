"""From patterns to open files: what matches, what is there, and nothing beyond what the definition allows."""
