"""Source `datasource`: any stream reader of PySpark's `pyspark.sql.datasource` as a connector."""
