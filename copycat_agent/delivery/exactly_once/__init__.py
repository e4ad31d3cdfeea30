"""Exactly once: records and positions in one Kafka transaction of a lane. `driver` is the connector's side, `task` the batch's."""
