"""Source `jdbc`: tables of databases, read through Spark's JDBC. It imports only `copycat_agent.extending`."""
