"""copycat-agent: log files and dropped files into Kafka, with nothing lost and nothing silent."""

__version__ = "0.1.0"
