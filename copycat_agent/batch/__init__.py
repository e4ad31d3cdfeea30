"""One batch, from files to acknowledgements: what is the same for every delivery. `executor.run_batch` runs it."""
