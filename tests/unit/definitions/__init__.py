"""The promises of the definition loader."""
