"""Source `journald`: entries of systemd's journal, read by `journalctl`. Written against `copycat_agent.extending` alone."""
