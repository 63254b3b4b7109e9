"""How the pieces of a node's results combine, found in its program.

`find` walks two traces of one function, made for two numbers of rows, side by side and tells of every result what a
piece of it is (see share.py). Nothing is run, and nothing is assumed of a primitive that has no rule.
"""

from motet.flow.reduction.share import ROWS, SAME, UNKNOWN, Share, mixed
from motet.flow.reduction.walk import find

__all__ = ["ROWS", "SAME", "UNKNOWN", "Share", "find", "mixed"]
