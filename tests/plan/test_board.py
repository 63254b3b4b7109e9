"""A replay on a board: what goes into PEARL's equations, and what crosses."""

from __future__ import annotations

from dataclasses import replace

import pytest

import motet
from motet.flow.graph import Graph, Node
from motet.plan import catalogue
from motet.plan.board import board_at, crossing, items, on_board, sum_tree_on_fpga
from motet.plan.cost import Book, Fit, Profile
from tests.laws.cases import ALGORITHMS, traced

PLAN = motet.pearl(lag=0, replay="opencl:0")
ENVS, STEPS, BATCH, CAPACITY = 8, 2, 16, 256
"""Of the replays in `tests/laws/cases.py`."""


def graph_of(name: str = "dqn-prioritised") -> Graph:
    return traced(ALGORITHMS[name], PLAN)


def node_of(graph: Graph, kind: str) -> Node:
    return next(node for node in graph.nodes() if node.kind == kind and node.name == kind)


def test_a_tree_is_as_deep_as_it_must_be() -> None:
    """2D/f alone, where items take no time."""

    def depth(leaves: int, fan_out: int) -> float:
        return sum_tree_on_fpga(0, draws=False, bandwidth=1.0, leaves=leaves, fan_out=fan_out, clock=2.0)

    assert [depth(leaves, 16) for leaves in (1, 16, 17, 256, 4096, 4097, 2**20)] == [1, 1, 2, 2, 3, 4, 5]
    assert [depth(leaves, 2) for leaves in (2, 3, 1000, 1024)] == [1, 2, 10, 10]


def test_items_are_what_a_node_draws_or_writes() -> None:
    graph = graph_of()
    found = {kind: items(graph, node_of(graph, kind)) for kind in ("remember", "sample", "reprioritize")}
    assert found == {"remember": STEPS * ENVS, "sample": BATCH, "reprioritize": BATCH}


def test_pearls_equations_get_what_the_loop_and_the_board_say() -> None:
    """B items, a tree over the replay's capacity with its own fan-out, and whatever passes the board's memory."""
    board = catalogue.find("pearl-workstation").device("fpga")
    assert board is not None
    wide = replace(ALGORITHMS["dqn-prioritised"], buffer_size=100_000)  # type: ignore[type-var]
    for graph, leaves in ((graph_of(), CAPACITY), (traced(wide, PLAN), 100_000)):
        for kind, count in (("remember", STEPS * ENVS), ("sample", BATCH), ("reprioritize", BATCH)):
            node = node_of(graph, kind)
            tree = sum_tree_on_fpga(
                count, draws=kind == "sample", bandwidth=77e9, leaves=leaves, fan_out=16, clock=300e6
            )
            moved = sum(crossing(graph, node)) / 77e9
            assert on_board(graph, node, board) == pytest.approx(board.launch + tree + moved, rel=1e-12)
            assert Book(graph, catalogue.find("pearl-workstation")).remembering(node, "opencl:0").seconds == on_board(
                graph, node, board
            )


def test_a_replay_without_priorities_looks_for_nothing() -> None:
    board = catalogue.find("pearl-workstation").device("fpga")
    assert board is not None
    graph = graph_of("dqn")
    for kind in ("remember", "sample"):
        node = node_of(graph, kind)
        assert on_board(graph, node, board) == board.launch + sum(crossing(graph, node)) / board.bandwidth


def test_what_is_added_goes_there_and_what_is_drawn_comes_back() -> None:
    graph = graph_of()
    there, back = crossing(graph, node_of(graph, "remember"))
    assert there == sum(graph.variables[name].nbytes() for name in node_of(graph, "remember").reads[1:]) and not back
    assert crossing(graph, node_of(graph, "reprioritize")) == (BATCH * (2 * 4 + 4), 0)
    there, back = crossing(graph, node_of(graph, "sample"))
    assert not there and back == sum(graph.variables[name].nbytes() for name in node_of(graph, "sample").writes)


def test_a_place_is_a_board_where_the_machine_has_one() -> None:
    workstation = catalogue.find("pearl-workstation")
    found = board_at(workstation, "opencl:0")
    assert found is not None and (found[0].kind, found[1]) == ("fpga", 0)
    assert board_at(workstation, "opencl") == found
    assert board_at(workstation, "opencl:1") is None and board_at(workstation, "host") is None
    assert board_at(workstation, "") is None and board_at(catalogue.a100_node(), "opencl:0") is None


def test_what_was_measured_of_a_replay_stays_measured_and_processors_compute_as_before() -> None:
    graph = graph_of()
    node = node_of(graph, "sample")
    known = Profile(replay={"opencl:0 sample": Fit(((8.0, 7.0),))})
    assert Book(graph, catalogue.find("pearl-workstation"), known).remembering(node, "opencl:0").word == "measured"
    figures = [
        Book(graph, machine).remembering(node, where)
        for machine, where in (
            (catalogue.a100_node(), "opencl:0"),
            (catalogue.a100_node(), "host"),
            (catalogue.find("pearl-workstation"), "host"),
        )
    ]
    back = crossing(graph, node)[1]
    assert [each.seconds for each in figures] == [50e-6 + back / 1e9] * 3
