"""Source `journald`: entries of systemd's journal, read through `journalctl`. It imports only `copycat_agent.extending`."""
