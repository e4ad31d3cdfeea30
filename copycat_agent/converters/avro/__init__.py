"""Avro: values checked and written in one pass, by a schema that is compiled once."""
