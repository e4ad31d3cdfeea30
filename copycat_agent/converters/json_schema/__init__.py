"""JSON with a schema: what is written is JSON, and the schema says whether it may be."""
