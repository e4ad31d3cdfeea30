"""Source `objects`: follows a bucket, or a directory tree at a URI. It imports only `copycat_agent.extending`."""
