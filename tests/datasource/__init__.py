"""Source `datasource`: stream readers of PySpark, by the real agent on a real broker."""
