"""Measurements: speed beside a hand-written loop and beside peers, start-up time, memory, and learning."""
