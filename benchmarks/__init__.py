"""Speed, side by side with other tools, in one run on one broker. A figure counts as a ratio within a run."""
