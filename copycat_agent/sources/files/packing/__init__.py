"""Packed files: codecs, unpacked text by position, and what the driver knows of them."""
