"""From patterns to open files: what matches, what exists, and nothing beyond what the definition allows."""
