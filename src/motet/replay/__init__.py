"""Replay: what an algorithm remembers and draws from."""

from motet.replay.contract import Replay
from motet.replay.draws import Drawn, draw_bits
from motet.replay.prioritised import Prioritised
from motet.replay.ring import Ring
from motet.replay.uniform import Uniform

__all__ = ["Drawn", "Prioritised", "Replay", "Ring", "Uniform", "draw_bits"]
