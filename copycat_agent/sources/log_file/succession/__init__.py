"""Decides what newly met files are, compared with what is known: continued, copied, archived, missed, or dropped."""
