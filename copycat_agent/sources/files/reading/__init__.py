"""The bytes of one open file, of this host or behind a URI, as a task reads them."""
