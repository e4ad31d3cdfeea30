"""Source `objects`: a bucket, or a directory tree behind a URI, followed for ever. Written against `copycat_agent.extending` alone."""
