"""The forms of a graph: each says all there is to say, in its own grammar."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise
from typing import get_args
from xml.etree import ElementTree

import pytest

import motet
from motet.flow import graph_text as show
from motet.flow.describe import bundles, grouped, table, type_of
from motet.flow.draw import FILL, INK
from motet.flow.graph import Kind, Loop, walk

ALGORITHMS = {"ppo": motet.PPO(num_envs=8, num_steps=64), "a2c": motet.A2C(num_envs=8), "dqn": motet.DQN()}
ALGORITHMS["prioritised"] = motet.DQN(prioritised=True)
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


@cache
def graph_of(name):
    return motet.trace(ALGORITHMS[name], motet.make("CartPole-v1"))


@every_algorithm
def test_text_mentions_every_node_loop_and_value(name):
    graph, text = graph_of(name), show.text(graph_of(name))
    for item, _ in walk(graph.root):
        assert re.search(rf"─ {item.name} [(×]" if item is not graph.root else r"^run ×1", text, re.MULTILINE)
    for var in graph.variables.values():
        line = next(line for line in text.splitlines() if re.match(rf"{re.escape(var.name)}  ", line))
        assert f"{var.nbytes():,}" in line


@every_algorithm
def test_text_lists_every_edge_under_its_producer(name):
    graph = graph_of(name)
    listed, producer = set(), None
    for line in show.text(graph).partition("from, value")[2].splitlines()[2:-1]:
        if not line.startswith(" "):
            producer = line
            continue
        var, consumer, rate, size, *carried = line.split()
        listed.add((producer, consumer, var, rate, bool(carried)))
        assert size == f"{graph.variables[var].nbytes():,}"
    assert listed == {(e.producer, e.consumer, e.var, e.rate, e.carried) for e in graph.edges()}


@every_algorithm
def test_text_fits_a_narrow_terminal(name):
    assert max(map(len, show.text(graph_of(name)).splitlines())) <= 80


def test_types_name_the_axes_of_time_environments_and_items():
    graph = graph_of("ppo")
    assert type_of(graph, graph.variables["rollout.observation"]) == "float32[T=64,B=8,4]"
    assert type_of(graph, graph.variables["step.reward"]) == "float32[B=8]"
    assert "N=64" in type_of(graph, graph.variables["minibatch.targets"])
    assert type_of(graph, graph.variables["learner"]) == "38 arrays"


@every_algorithm
def test_json_is_complete(name):
    graph, data = graph_of(name), json.loads(show.to_json(graph_of(name)))

    def items(item):
        yield item.get("node") or item["loop"]
        for child in item.get("body", ()):
            yield from items(child)

    assert list(items(data["loops"])) == [item.name for item, _ in walk(graph.root)]
    assert data["loops"]["body"][-1]["loop"] == "iteration"
    assert set(data["variables"]) == set(graph.variables)
    for var in graph.variables.values():
        leaves = data["variables"][var.name]["leaves"]
        assert [tuple(leaf["shape"]) for leaf in leaves] == [aval.shape for aval in var.avals]
        assert [leaf["dtype"] for leaf in leaves] == [str(aval.dtype) for aval in var.avals]
        assert [leaf["env_axis"] for leaf in leaves] == list(var.axes)
    assert len(data["edges"]) == len(graph.edges())
    assert all(edge["bytes"] == graph.variables[edge["variable"]].nbytes() for edge in data["edges"])
    assert (data["num_envs"], data["iterations"]) == (graph.num_envs, graph.iterations)


@every_algorithm
def test_dot_is_well_formed_and_joins_declared_nodes(name):
    graph, dot = graph_of(name), show.dot(graph_of(name))
    string = r'"(?:[^"\\]|\\.)*"'
    bare = re.sub(string, "S", dot)
    assert '"' not in bare
    assert bare.count("{") == bare.count("}") == 1 + dot.count("subgraph")
    statement = r"digraph S \{|subgraph S \{|\}|(graph|node|edge) \[.*\];|label=S;|S \[.*\];|S -> S \[.*\];"
    assert all(re.fullmatch(statement, line.strip()) for line in bare.splitlines())
    declared = re.findall(rf"^ *({string}) \[", dot, re.MULTILINE)
    assert len(set(declared)) == len(declared) == len(graph.nodes())
    edges = re.findall(rf"^  ({string}) -> ({string}) \[label=({string})", dot, re.MULTILINE)
    assert {end for edge in edges for end in edge[:2]} <= set(declared)
    assert sum(len(label.split("\\n")) for _, _, label in edges) == len(graph.edges())
    assert dot.count("subgraph") == sum(isinstance(item, Loop) for item, _ in walk(graph.root))


SVG = "{http://www.w3.org/2000/svg}"


@every_algorithm
def test_svg_draws_every_node_loop_and_bundle_of_edges(name):
    graph, root = graph_of(name), ElementTree.fromstring(show.svg(graph_of(name)))
    words = {text.get("class"): [] for text in root.iter(f"{SVG}text")}
    for text in root.iter(f"{SVG}text"):
        words[text.get("class")].append(text.text)
    assert sorted(words["node"]) == sorted(node.name for node in graph.nodes())
    assert len(words["loop"]) == sum(isinstance(item, Loop) for item, _ in walk(graph.root)) - 1  # not `run`
    assert len(words["value"]) == len(words["size"]) == len(bundles(graph))


@every_algorithm
def test_svg_labels_stay_inside_and_apart(name):
    root = ElementTree.fromstring(show.svg(graph_of(name)))
    width, height = int(root.get("width")), int(root.get("height"))
    texts = list(root.iter(f"{SVG}text"))
    assert all(0 < float(text.get("x")) < width and 0 < float(text.get("y")) < height for text in texts)
    labels = [text for text in texts if text.get("class") in ("value", "size")]
    for side in ("start", "end"):
        heights = sorted(float(text.get("y")) for text in labels if text.get("text-anchor") == side)
        assert all(b - a >= 12 for a, b in pairwise(heights))
    longest = max(len(text.text) * (11 if text.get("class") == "value" else 10) * 0.603 for text in labels)
    assert longest < 226


def test_names_of_one_link_are_grouped():
    assert grouped(["a.x", "b", "a.y", "c.z"]) == ["a.{x, y}", "b", "c.z"]
    assert grouped(["policy", "policy.weights"]) == ["policy", "policy.weights"]


def test_a_table_aligns_its_columns():
    assert table(("name", "n"), [("a", 1), ("long name", 100)], "<>") == [
        "name         n",
        "─────────  ───",
        "a            1",
        "long name  100",
    ]


def test_every_kind_of_node_has_its_colours():
    assert set(FILL) == set(INK) == set(get_args(Kind))
