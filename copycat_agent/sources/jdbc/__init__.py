"""Source `jdbc`: tables of databases, read through Spark's JDBC. Written against `copycat_agent.extending` alone."""
