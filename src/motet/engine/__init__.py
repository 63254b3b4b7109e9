"""The back end: what runs a plan's programs."""
