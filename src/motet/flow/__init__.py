"""The front end: an algorithm's loop as a graph."""
