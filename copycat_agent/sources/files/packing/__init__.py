"""Packed log files: which codec, unpacked text by position, and what the driver knows of them."""
