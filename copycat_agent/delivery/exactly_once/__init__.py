"""Exactly once: records and positions in one Kafka transaction of a lane. `driver` is the connector's half, `task` the batch's."""
