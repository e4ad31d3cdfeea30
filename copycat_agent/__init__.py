"""copycat-agent: log files and dropped files into Kafka, at least once or exactly once."""

__version__ = "0.1.0"
