"""The test rig: a real broker, a proxy that breaks networks, a ledger that counts lines, the agent as a process."""
