"""Files that are not followed (any more): known again, continued by another one, missed, let go, or lost."""
