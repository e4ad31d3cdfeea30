"""How records reach Kafka, and when a position counts as saved: one strategy for each guarantee.

A connector's loop, a batch and the store work with any of them. `base` is the interface of the driver's half, `tasks` runs the task's half.
"""
