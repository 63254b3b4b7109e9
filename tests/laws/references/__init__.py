"""Algorithms written out by hand, one straight line each: what motet's fused programs are compared with.

Nothing here comes from motet. Loops are Python's, a replay is a list, priorities are a table that is added up from
its beginning at every draw. Random numbers come from the same addresses as motet's (`fold_in` of a node's name, an
iteration, a round and a row), so both compute the same numbers.
"""
