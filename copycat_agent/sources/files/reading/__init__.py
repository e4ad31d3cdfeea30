"""The bytes of one open file, on this host or behind a URI, as a task reads them."""
