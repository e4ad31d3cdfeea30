"""Parts for copycat-agent: a source, a format, a transform and a converter, one file each."""
