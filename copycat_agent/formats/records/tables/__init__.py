"""Formats whose records are rows of text: csv and fixed_width."""
