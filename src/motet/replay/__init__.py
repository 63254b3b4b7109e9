"""Replay: what an algorithm remembers and draws from."""

from motet.replay.uniform import Ring, Uniform

__all__ = ["Ring", "Uniform"]
