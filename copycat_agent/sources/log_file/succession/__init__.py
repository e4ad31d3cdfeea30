"""Newly met files against what is known: continued, copied, archived, missed, or let go."""
