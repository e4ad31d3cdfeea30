"""Where reading begins: `start_at`, `ignore_older`, and positions that a person sets."""
