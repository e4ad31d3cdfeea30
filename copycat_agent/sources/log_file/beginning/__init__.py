"""Where reading begins: `start_at`, `ignore_older`, and where a person wants it to."""
