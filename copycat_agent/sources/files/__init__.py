"""Shared by all sources of files: the identity of files, the patterns of paths, and how bytes are read and unpacked."""
