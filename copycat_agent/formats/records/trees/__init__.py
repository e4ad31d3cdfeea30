"""Formats whose records are trees: jsonl, json and xml."""
