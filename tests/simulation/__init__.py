"""A whole connector in random histories: files, batches, saves, orders and crashes between any two effects, under both guarantees."""
