"""A replay on a board, as an FPGA that OpenCL reaches: what its sum tree takes, and what crosses to it and back."""

from __future__ import annotations

import math
from typing import Any

from motet.flow.graph import Graph, Node
from motet.plan.machine import Device, Machine

FAN_OUT = 16
"""Children of a node of the sum tree, where a replay does not say: the most of the 8 to 16 that PEARL found best."""
CLOCK = 300e6
"""Hertz of a board. PEARL's equations leave it open and descriptions of machines do not say it: it is assumed."""
LEAVES = 2**20
"""Of the sum trees whose times PEARL has published."""
ITEM = 24
"""Bytes of an item that pass between a board and its memory, by PEARL's equations."""


def sum_tree_on_fpga(
    items: int, *, draws: bool, bandwidth: float, leaves: int = LEAVES, fan_out: int = FAN_OUT, clock: float = CLOCK
) -> float:
    """Seconds of a K-ary sum tree on an FPGA for so many items, by PEARL's equations: to draw them takes
    2K(B + D)/f + 24B/BW, to write them 2D/f + 24B/BW, where D is the tree's depth."""
    depth = next(levels for levels in range(1, leaves.bit_length() + 1) if fan_out**levels >= leaves)
    cycles = 2 * fan_out * (items + depth) if draws else 2 * depth
    return cycles / clock + ITEM * items / bandwidth


def board_at(machine: Machine, outside: str) -> tuple[Device, int] | None:
    """The board that a place of a replay means, and its number on its host. None: "host", or an OpenCL device that is
    the host's own processor."""
    kind, _, number = outside.partition(":")
    board = machine.device("fpga")
    return (board, int(number or 0)) if kind == "opencl" and board and int(number or 0) < board.count else None


def on_board(graph: Graph, node: Node, board: Device) -> float:
    """Seconds of a replay's node on a board, once it is asked: its sum tree, if it has priorities, and the items."""
    there, back = crossing(graph, node)
    return board.launch + _tree(graph, node, board) + (there + back) / board.bandwidth


def _tree(graph: Graph, node: Node, board: Device) -> float:
    call = node.replay
    if call is None or not call.replay.prioritised or call.what == "sweep":
        return 0.0  # nothing is looked for
    count, leaves, fan_out = items(graph, node), call.replay.capacity, getattr(call.replay, "fan_out", FAN_OUT)
    return sum_tree_on_fpga(
        count, draws=call.what == "sample", bandwidth=board.bandwidth, leaves=leaves, fan_out=fan_out
    )


def items(graph: Graph, node: Node) -> int:
    """How many items a node draws, or writes into the replay: of an addition its steps times its environments."""
    names, axes = (node.writes, 1) if node.kind == "sample" else (node.reads, 2 if node.kind == "remember" else 1)
    return max((math.prod(aval.shape[:axes]) for aval in _carried(graph, names)), default=1)


def crossing(graph: Graph, node: Node) -> tuple[int, int]:
    """The bytes that a node sends to the board, and those that come back."""
    there, back = (
        sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in _carried(graph, names))
        for names in (node.reads, node.writes)
    )
    return there, back


def _carried(graph: Graph, names: tuple[str, ...]) -> list[Any]:
    """What is not the replay itself."""
    return [aval for name in names if name != graph.roles.replay for aval in graph.variables[name].avals]
