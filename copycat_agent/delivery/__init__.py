"""How records reach Kafka, and when a position counts as saved: one strategy for each guarantee.

A connector's loop, a batch and the store work with any of them. `base` is the interface of both halves: the driver's, which the loop
uses, and the task's, which `executor.run_batch` runs.
"""
