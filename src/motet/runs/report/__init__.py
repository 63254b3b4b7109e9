"""A run as one page: everything in one file, without any script, which opens without a network."""
