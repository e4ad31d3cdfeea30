"""What converters with schemas have in common: which schema a record gets, from where, and under which id."""
