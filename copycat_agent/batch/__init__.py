"""One batch, from files to acknowledgements: what is the same for every delivery. `delivery.tasks` runs it."""
