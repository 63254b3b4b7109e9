"""`python -m tests.mutations [NAME ...]`: break chosen lines of `plan/` and `engine/`, one at a time, and see whether
the tests notice. Ends with 1 if any break goes unnoticed. The record in benchmarks/results is written anew, but what it
says of breaks that were not made this time.

Each break is made in a copy, never in the working tree. The tests beside it are those that ought to notice it, single
ones where a whole file would take long; they are run on the unbroken copy first, where they must pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "mutations.md"
TIMEOUT = 600.0
"""Seconds after which a copy whose tests hang counts as noticed: nobody would overlook that."""

PROTOCOL = "tests/plan/test_protocol.py"
PROPERTY = "tests/plan/test_projection_property.py"
PLACES = "tests/plan/test_places.py"
PORTS = "tests/engine/test_ports.py"
WORKER = "tests/engine/test_worker.py"
BESIDES = "tests/flow/test_besides.py::test_what_was_sent_is_not_given_away_by_who_runs_ahead"
EVERY = "tests/flow/test_every.py"
PREFILL = "tests/flow/test_prefill.py"
STRAIGHT = "tests/laws/test_law_3_fused_equals_handwritten.py"
SAME = "tests/laws/test_law_4_plans_keep_the_mathematics.py::test_every_plan_equals_the_fused_run"
COARSE, CENTRAL, FINE = f"{SAME}[a2c-coarse-2]", f"{SAME}[dqn-central-2]", f"{SAME}[dqn-fine-2]"
SHARDED, TWO = f"{SAME}[ppo-anakin-4]", f"{SAME}[batch_ppo-multi_learner-2]"
HOST = f"{SAME}[dqn-prioritised-pearl-host]"
CONTENTS = "tests/laws/test_law_5_contents.py"
LAG = "tests/laws/test_law_5_lag_is_exact.py"
TRAFFIC = "tests/laws/test_law_6_predicted_is_measured.py"
BAD = "tests/laws/test_law_8_bad_plans_fail_first.py"
CLOCK = "tests/laws/test_law_16_control_flow_has_no_clock.py"
HOSTED = "tests/laws/test_host_environments.py"
DRAWS = "tests/laws/test_replay_in_a_plan.py::test_priorities_are_exactly_as_late_as_the_plan_says"
MEMORY = "tests/engine/test_replay_fits.py"
VIRTUAL, SEARCH = "tests/engine/test_virtual.py", "tests/plan/test_search.py"


@dataclass(frozen=True)
class Mutation:
    """One line, wrong."""

    what: str
    file: str
    """Below src/motet."""
    right: str
    wrong: str
    tests: tuple[str, ...]


MUTATIONS = {
    # Which round's value is due, and who may be late.
    "lag one short": Mutation(
        "a late value is one round newer than the plan says",
        "plan/protocol.py",
        "number(wire, path) - 1 - wire.lag",
        "number(wire, path) - 1 - max(wire.lag - 1, 0)",
        (PROTOCOL,),
    ),
    "lag one long": Mutation(
        "every carried value is one round older",
        "plan/protocol.py",
        "number(wire, path) - 1 - wire.lag",
        "number(wire, path) - 2 - wire.lag",
        (PROTOCOL,),
    ),
    "last round sent": Mutation(
        "what nobody reads any more is sent in a loop's last round",
        "plan/protocol.py",
        "return not (wire.carried and path[-1:] == (last,) and not wire.through)",
        "return True",
        (PROTOCOL,),
    ),
    "age of a lockstep value": Mutation(
        "the lag that a run reports is one too many",
        "plan/protocol.py",
        "- (1 if wire.carried else 0)",
        "- 0",
        (PROTOCOL, CONTENTS),
    ),
    "latest of anything": Mutation(
        "the latest value may be asked of what must not be left out",
        "plan/protocol.py",
        "return wire.carried and all(var in graph.views for var in wire.vars)",
        "return wire.carried",
        (PROTOCOL, BAD),
    ),
    "any loop may lag": Mutation(
        "a lag inside the iteration is accepted for values that are not late",
        "plan/protocol.py",
        "_counts_on(graph, loop) and all(graph.variables[var].late for var in vars)",
        "_counts_on(graph, loop)",
        (PROTOCOL, BAD),
    ),
    "room for one": Mutation(
        "channels hold one message, whatever the lag",
        "plan/protocol.py",
        "        return wire.lag + 1\n    return max(1, ways",
        "        return 1\n    return max(1, ways",
        (PROTOCOL,),
    ),
    # Who sends what to whom.
    "dropped send": Mutation(
        "of several sends after one node, the first alone is made",
        "plan/project.py",
        "[Send(wire) for wire in here if wire.source == fragment]",
        "[Send(wire) for wire in here if wire.source == fragment][:1]",
        (PROPERTY,),
    ),
    "sent before written": Mutation(
        "a reader is looked for at the writer itself, not behind it",
        "plan/project.py",
        "return self._sees(loop.body[position + 1 :], fragment, var)",
        "return self._sees(loop.body[position:], fragment, var)",
        (PROPERTY,),
    ),
    "every write carried": Mutation(
        "values that are written again in the same round are carried too",
        "plan/project.py",
        "return goes_round and last_write and",
        "return goes_round and",
        (PROPERTY,),
    ),
    "held in a phase": Mutation(
        "a fragment is taken to hold what is only sent when a phase runs",
        "plan/project.py",
        "or item.every > 1 or var in",
        "or var in",
        (f"{EVERY}::test_who_was_sent_a_value_in_a_phase_has_one_where_it_does_not_run",),
    ),
    "answers in lockstep": Mutation(
        "answers to what is drawn ahead are not late",
        "plan/project.py",
        "*self._ahead(loop, source, target)]",
        "]",
        (DRAWS, PROPERTY),
    ),
    "rows of the wrong sender": Mutation(
        "rows are counted from the batch's start, not from the sender's",
        "plan/route.py",
        "found.append(Piece(var.name, leaf, axis, low - first, high - first))",
        "found.append(Piece(var.name, leaf, axis, low, high))",
        (COARSE, PROPERTY),
    ),
    "one sender's gradient": Mutation(
        "of a result in parts, one replica's part alone is sent",
        "plan/route.py",
        "if sender == near or (var.combine[leaf] and not joined):",
        "if sender == near:",
        (CENTRAL, PROPERTY),
    ),
    "replicas on one device": Mutation(
        "replicas that should share a device take one each",
        "plan/places.py",
        "each // fragment.per_device * shards",
        "each * shards",
        (PLACES, HOSTED),
    ),
    "rounds counted twice": Mutation(
        "the table of links multiplies by the innermost loop twice",
        "plan/traffic.py",
        "prod(loop.count for loop in around[:-1])",
        "prod(loop.count for loop in around)",
        (TRAFFIC,),
    ),
    "unreduced results accepted": Mutation(
        "results that no combination of pieces would give pass the check",
        "plan/check_batches.py",
        "        if parts == 1:\n",
        "        if parts >= 1:\n",
        (BAD,),
    ),
    # What a fragment holds and gives away.
    "sent and given away": Mutation(
        "a variable that others may still hold is donated to a program",
        "plan/schedule.py",
        "& self.live.owned) - sent(statements)",
        "& self.live.owned)",
        (BESIDES,),
    ),
    "state without what lags": Mutation(
        "a worker's state leaves out what is received in some rounds alone",
        "plan/liveness.py",
        "if not (sure and isinstance(statement, Receive) and statement.wire.carried):",
        "if True:",
        (WORKER,),
    ),
    # Messages.
    "latest goes back": Mutation(
        "an older message replaces a newer value",
        "engine/ports.py",
        "if order > max(self.held.get((name, other.source), 0), brought.get(name, (0,))[0]):",
        "if True:",
        (PORTS, CONTENTS),
    ),
    "latest queues up": Mutation(
        "a channel for the latest value keeps what it should replace",
        "engine/ports.py",
        "            if self.latest:\n                self.queue.clear()\n",
        "",
        (PORTS, CONTENTS),
    ),
    "swapped axis": Mutation(
        "rows are cut along the first axis, wherever the environments lie",
        "engine/join.py",
        "else _rows(leaf, piece.axis, piece.start, piece.stop)",
        "else _rows(leaf, 0, piece.start, piece.stop)",
        (COARSE,),
    ),
    "the first part wins": Mutation(
        "parts of a result from several senders are not combined",
        "engine/join.py",
        "return mine[0] if len(mine) == 1 else combine",
        "return mine[0] if mine else combine",
        (CENTRAL,),
    ),
    "shards get the wrong rows": Mutation(
        "a device gets rows from the start of a part that lies across two",
        "engine/join.py",
        "_rows(part, axis, max(low - start, 0), min(high, stop) - start)",
        "_rows(part, axis, 0, min(high, stop) - max(low, start))",
        (PORTS, PROPERTY),
    ),
    # What is computed.
    "missing average": Mutation(
        "shards keep their own results over the batch",
        "engine/lowering.py",
        "if self.cut.shards > 1:",
        "if self.cut.shards > 2:",
        (TWO,),
    ),
    "keys of the outer loop": Mutation(
        "random keys do not depend on the inner loop's round, outside of programs",
        "engine/lowering.py",
        "    for index in path:\n",
        "    for index in path[:1]:\n",
        (FINE,),
    ),
    "a phase too early": Mutation(
        "compiled phases run one iteration early",
        "engine/lowering.py",
        "(jnp.asarray(index, jnp.int32) + 1) % loop.every",
        "(jnp.asarray(index, jnp.int32) + 2) % loop.every",
        (EVERY,),
    ),
    "prefill counted as rounds": Mutation(
        "compiled loops count their rounds from zero, wherever they begin",
        "engine/lowering.py",
        "np.arange(loop.first, loop.first + loop.count, dtype=np.uint32)",
        "np.arange(0, loop.count, dtype=np.uint32)",
        (PREFILL, STRAIGHT),
    ),
    "an iteration's number": Mutation(
        "the second call of many iterations counts from zero again",
        "engine/compiled.py",
        "iteration = first + round_.astype(jnp.uint32)",
        "iteration = round_.astype(jnp.uint32)",
        (CLOCK,),
    ),
    "metrics of one shard": Mutation(
        "sums that are shown are one shard's",
        "engine/compiled.py",
        'if how == "sum" and self.home.place.whole.sharded else one',
        "if False else one",
        (SHARDED,),
    ),
    "shards share their keys": Mutation(
        "all shards believe to be the first piece",
        "engine/compiled.py",
        "return first + jax.lax.axis_index(SHARDS) if self.home.place.whole.sharded else first",
        "return first",
        (SHARDED,),
    ),
    "a phase in a worker": Mutation(
        "workers run phases one iteration late",
        "engine/worker.py",
        "(path[-1] + 1) % loop.every == 0",
        "path[-1] % loop.every == 0",
        (EVERY,),
    ),
    "one iteration again": Mutation(
        "a loaded state goes on one iteration before where it was",
        "engine/worker.py",
        "self.iteration, self.started = state.iteration, True",
        "self.iteration, self.started = state.iteration - 1, True",
        (WORKER,),
    ),
    "draws of the outer loop": Mutation(
        "a replay outside of XLA draws the same in every round of an iteration",
        "engine/replays.py",
        "np.asarray(path, np.uint32)",
        "np.asarray([*path[:-1], 0], np.uint32)",
        (HOST,),
    ),
    "sums of means": Mutation(
        "what the host averages over a loop is added up",
        "engine/perform.py",
        '"mean": lambda rows: np.mean(rows, 0)',
        '"mean": lambda rows: np.sum(rows, 0)',
        ("tests/engine/test_stacking.py",),
    ),
    "memory of all devices": Mutation(
        "a replay in shards is weighed as a whole against one device",
        "engine/replay_fits.py",
        "parts = 1 if shared else",
        "parts = 1 if True else",
        (MEMORY,),
    ),
    # What a plan is expected to do.
    "cores for all": Mutation(
        "on the virtual clock nobody is slowed down by others",
        "engine/clock.py",
        "self.pace = min(1.0, self.capacity / wanted) * self._speed(wanted) if wanted > 0 else 1.0",
        "self.pace = 1.0",
        (f"{VIRTUAL}::test_who_shares_a_core_takes_turns",),
    ),
    "queues without an end": Mutation(
        "on the virtual clock a sender never waits for room",
        "engine/virtual.py",
        'return channel[0].lag == "latest" or len(self.queues[channel]) < self.room[channel[0]]',
        "return True",
        (VIRTUAL,),
    ),
    "messages at once": Mutation(
        "on the virtual clock a message arrives when it is sent",
        "engine/virtual.py",
        "return bool(queue) and queue[0].arrived",
        "return bool(queue)",
        (f"{VIRTUAL}::test_messages_take_time_on_their_way",),
    ),
    "too low a floor": Mutation(
        "the bound that lets the search skip plans takes all cores for one",
        "engine/estimate.py",
        "return max(longest, cores / book.machine.cores, locked)",
        "return max(longest, cores, locked)",
        (SEARCH,),
    ),
    "lag without leave": Mutation(
        "the planner takes whatever lag the algorithm allows",
        "plan/search.py",
        "lags = range(min(permitted.lag, permitted.lag if graph.max_lag is None else graph.max_lag) + 1)",
        "lags = range((permitted.lag if graph.max_lag is None else graph.max_lag) + 1)",
        (SEARCH,),
    ),
    "wraps unseen": Mutation(
        "a counter of energy that begins anew is taken at its word",
        "engine/power.py",
        "self.total += gained + self.wraps_at if gained < 0 else gained",
        "self.total += gained",
        ("tests/engine/test_power.py",),
    ),
}


def broken(mutation: Mutation, folder: Path) -> None:
    """Make one break in a copy of the sources."""
    file = folder / "src" / "motet" / mutation.file
    text = file.read_text()
    if text.count(mutation.right) != 1:
        raise SystemExit(f"{mutation.file} has {text.count(mutation.right)} places, not one, with: {mutation.right}")
    file.write_text(text.replace(mutation.right, mutation.wrong))


def copied(folder: Path) -> None:
    for name in ("src", "tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)


def run(tests: tuple[str, ...], folder: Path, *how: str) -> tuple[int, str]:
    """-> pytest's exit code and the first test that failed; 1 and the time-out if it hangs."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *how, *tests]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return 1, f"(hangs, given up after {TIMEOUT:g} s)"
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return done.returncode, failed[1] if failed else (done.stdout + done.stderr)[-500:].strip()


def attempt(name: str) -> tuple[bool, str, float]:
    """Whether a break is noticed, by which test, and the seconds that it took."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="motet-mutation-") as place:
        folder = Path(place)
        copied(folder)
        broken(MUTATIONS[name], folder)
        code, by = run(MUTATIONS[name].tests, folder)
    return code == 1, by, time.monotonic() - start


def complaint(tests: tuple[str, ...]) -> str:
    """What fails although nothing is broken; nothing should."""
    with tempfile.TemporaryDirectory(prefix="motet-mutation-") as place:
        copied(Path(place))
        code, by = run(tests, Path(place), "-n", "3", "--dist", "loadgroup")
        return by if code else ""


NOBODY, NOT_YET = "**nobody**", "(not made yet)"


def known(text: str) -> dict[str, str]:
    """Of a record: break -> who noticed it."""
    rows = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    return {cells[0]: cells[3] for cells in rows if len(cells) == 4 and cells[0] in MUTATIONS}


def record(found: dict[str, tuple[bool, str, float]], before: str = "") -> str:
    """The record in whole, of what was found now and, for other breaks, in the record before."""
    by = known(before) | {name: f"`{test}`" if seen else NOBODY for name, (seen, test, _) in found.items()}
    each = {name: by.get(name, NOT_YET) for name in MUTATIONS}
    made = [name for name in each if each[name] != NOT_YET]
    noticed = sum(each[name] != NOBODY for name in made)
    rows = [f"| {name} | `{MUTATIONS[name].file}` | {MUTATIONS[name].what} | {each[name]} |" for name in each]
    return "\n".join(
        [
            "# Broken on purpose",
            "",
            "Written by `make mutations`: each line below was broken alone, in a copy of motet, and the tests run.",
            f"Of {len(each)} breaks {len(made)} were made, all at once or one by one; {noticed} were noticed.",
            "",
            "| break | file | what it does | first test that failed |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MUTATIONS]
    if unknown:
        print(f"no mutation is called {', '.join(unknown)}; there are {', '.join(MUTATIONS)}", file=sys.stderr)
        return 2
    chosen = names or list(MUTATIONS)
    tests = tuple(dict.fromkeys(test for name in chosen for test in MUTATIONS[name].tests))
    wrong = complaint(tests)
    if wrong:
        print(f"nothing is broken, and yet this fails: {wrong}", file=sys.stderr)
        return 2
    found: dict[str, tuple[bool, str, float]] = {}
    with ThreadPoolExecutor(2) as pool:
        for name, result in zip(chosen, pool.map(attempt, chosen), strict=True):
            found[name] = result
            seen, by, seconds = result
            print(f"{name}: {'noticed' if seen else 'NOT NOTICED'} in {seconds:.0f} s, {by}", flush=True)
    RECORD.write_text(record(found, RECORD.read_text() if RECORD.exists() else ""))
    return 0 if all(result[0] for result in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
