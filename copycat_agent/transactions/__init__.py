"""Exactly once: the protocol of a lane, as pure generators that yield each step to the caller, who performs it (`protocol`).

`lane_writer` is the task's side, `opening` the driver's. `tests/unit/transactions` runs both through seeded histories;
`producer.transactional` performs their steps on a real broker.
"""
