"""Source `journald`: journals that systemd-journal-remote writes, by the real agent on a real broker."""
