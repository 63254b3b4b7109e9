"""`Flow`: what `Algorithm.loop` is written with. Each call on it records a node or a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax

from motet.errors import BadAlgorithm
from motet.flow.acting import AnyEnvironment, RolloutRecorder
from motet.flow.algorithm import Algorithm, Decision
from motet.flow.batches import Batching
from motet.flow.calls import Calling
from motet.flow.complete import complete, first_learner, prefill_loop
from motet.flow.graph import Cut, Graph, Loop, Report, Roles
from motet.flow.record import GraphRecorder
from motet.flow.replaying import STATE, Replaying
from motet.flow.reporting import named
from motet.flow.states import States
from motet.flow.values import Drawn, Rollout, Swept, Value, show


class Flow:
    """What `Algorithm.loop` is written with."""

    def __init__(self, algorithm: Algorithm, env: AnyEnvironment, cuts: Iterable[Cut]):
        self._algorithm, self._env = algorithm, env
        self._record = GraphRecorder(type(algorithm).__name__, algorithm.num_envs, cuts)
        self._acting = RolloutRecorder(self._record, algorithm, env)
        self._batching = Batching(self._record)
        self._calling = Calling(self._record)
        self._replaying = Replaying(self._record)
        self._states = States(self._record)
        self.prefill_steps = 0
        self._start_learner()

    def unroll(self, act: Callable[..., Decision], *, steps: int) -> Rollout:
        """Act and step every environment `steps` times -> a `Rollout` of [T, B] values.

        `act` may have parameters named `index`, `reward` and `action`: the environment's number, and what the step
        before gave and did, which are 0 where an episode begins.
        """
        return self._acting.unroll(act, steps)

    def call(self, method: Callable[..., Any], *values: Any) -> Any:
        """Run `method(weights, *values[, key][, keys])` -> handles of what it returns, one for each element of a tuple.

        What it returns without an environment axis is one result over the batch: how pieces of it combine is found in
        its program, and what no combination gives needs the batch in one piece. A parameter `key` gets one key for
        the whole batch; `keys` gets one for each row of it, [N], the same however the batch is cut.

        An attribute or item of a handle is a handle on that part of what the method returned.
        """
        return self._calling.call(method, values)

    def minibatches(
        self, batch: Any, *, epochs: int, count: int, sequences: bool = False
    ) -> AbstractContextManager[Any]:
        """Go `epochs` times through `batch` in `count` shuffled parts: [T, B] values, flattened to [N], or the [N]
        values of a sample, which may be sequences [N, L].

        With `sequences`, time is left as it is: parts are [T, B / count], and values of the start of the rollout,
        [B], become [B / count].
        """
        return self._batching.minibatches(batch, epochs, count, sequences)

    @contextmanager
    def repeat(self, count: int) -> Iterator[None]:
        """Run the body `count` times in each iteration."""
        with self._record.loop(self._record.name("repeat"), count, "update"):
            yield

    @contextmanager
    def every(self, iterations: int) -> Iterator[None]:
        """Run the body in every so-manieth iteration alone: in iterations n - 1, 2n - 1, ...

        In the others, states stay as they are. What is reported in it is averaged over the iterations that ran it.
        """
        record = self._record
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
            raise BadAlgorithm(f"flow.every takes a whole number of iterations from 1 on, got {iterations!r}.")
        if len(record.stack) > 1:
            raise BadAlgorithm(
                f"flow.every counts iterations: it belongs directly into {record.title}.loop, not into the loop "
                f"{record.stack[-1].name!r}."
            )
        with record.loop(record.name("every"), 1, "iteration", iterations):
            yield

    def apply(self, method: Callable[..., Any], *values: Any) -> None:
        """Run `method(state, *values[, key]) -> state`: the learner state changes. A parameter `key` gets one key for
        each update. What it reads with an environment axis may change the state by `motet.batch_mean` and the like
        alone, or else needs the batch in one piece."""
        self._calling.apply(method, values)

    def state(self, name: str, init: Callable[..., Any], *, per_environment: bool = False) -> Value:
        """A state of your own -> its handle, which calls read like any other.

        `init([key])` makes its first value; with `per_environment`, that of ONE environment, and the state is [B, ...]
        of them, cut like the environments. `flow.update` changes it.
        """
        return self._states.state(name, init, per_environment)

    def update(self, state: Value, method: Callable[..., Any], *values: Any) -> None:
        """Run `method(value, *values[, key]) -> value`: a state of your own changes."""
        self._states.update(state, method, values)

    def remember(self, values: Any, into: Any) -> None:
        """Add [T, B] values to the replay `into` (see motet.replay)."""
        self._replaying.remember(values, into)

    def sample(self, size: int) -> Drawn:
        """Draw `size` remembered items -> handles on `items`, [N] values of the structure that was remembered, and,
        from a prioritised replay, on their importance `weight` and their `index`."""
        return self._replaying.sample(size)

    def sweep(self, steps: int) -> AbstractContextManager[Swept]:
        """Go through all that the replay holds, oldest first, in batches of `steps` steps of every environment.

        Gives handles on `items`, [steps, B] values as they were remembered, and on `held`, [steps, B] which of them
        there are: the replay may not be full yet, and the last batch may reach beyond its end.
        """
        return self._replaying.sweep(steps)

    def reprioritize(self, sample: Drawn, priorities: Any) -> None:
        """Give the items of `sample` new priorities, [N] numbers from 0 on, before the next draw. A replay without
        priorities has no use for them."""
        self._replaying.reprioritize(sample, priorities)

    def prefill(self, steps: int) -> None:
        """Before the first iteration, act and remember until `steps` environment steps are in the replay. What lies
        between `unroll` and `remember` and has a part in what is remembered runs too."""
        self.prefill_steps = steps

    def report(self, metrics: Value) -> None:
        """Show a dictionary of scalars to whoever watches the run, averaged over each iteration."""
        if not isinstance(metrics, Value):
            raise BadAlgorithm(f"flow.report takes what flow.call returned, got {metrics!r}.")
        shape = self._record.shape(metrics.name)
        if not isinstance(shape, dict) or any(leaf.shape for leaf in jax.tree.leaves(shape)):
            raise BadAlgorithm(
                f"flow.report takes a dictionary of scalars; {metrics.name} is {show(shape)}. "
                "Take the mean of each entry first."
            )
        self._record.stack[-1].reported.append(Report(metrics.name, "mean", metrics.name.split(".")[0]))

    # What `trace` calls.

    @property
    def steps(self) -> int:
        """Steps of every environment in an iteration."""
        return self._acting.steps

    def run(self) -> None:
        """Record the algorithm's loop."""
        self._algorithm.loop(self)
        if not self.steps:
            raise BadAlgorithm(f"{self._record.title}.loop never calls flow.unroll: nothing would ever act.")

    def finish(self, iterations: int) -> Graph:
        """Close the iteration and assemble the graph."""
        record, (iteration,) = self._record, self._record.stack
        loop = Loop("iteration", 1, tuple(iteration.items), (), "iteration")
        sites = {"learner": first_learner(record.title, loop), **self._states.checked()}
        each = self.steps * record.num_envs
        prefill = prefill_loop(iteration.items, self.prefill_steps, each)
        self._replaying.check_filled(sum(loop.count for loop in prefill) * each, each)
        root = Loop("run", 1, (*record.init, *prefill, loop), (), "run")
        return Graph(
            algorithm=record.title,
            environment=self._env.name,
            num_envs=record.num_envs,
            iterations=iterations,
            steps_per_iteration=each,
            prefill_steps=sum(loop.count for loop in prefill) * each,
            max_lag=self._algorithm.max_lag,
            variables=record.variables,
            views=record.views,
            root=complete(root, sites, tuple(record.views)),
            reports=named(
                record.title,
                record.variables,
                [*(Report(name, "sum", "env") for name in self._acting.sums()), *iteration.reported],
            ),
            divisors=tuple(dict.fromkeys(record.divisors)),
            cuts=record.cuts,
            roles=Roles("learner", STATE if self._replaying.replay is not None else ""),
        )

    def _start_learner(self) -> None:
        algorithm = self._algorithm
        self._record.start("learner", lambda here: (algorithm.init(here.key),), ["learner"], "apply")
        self._record.view("policy", "learner", algorithm.policy)
        if type(algorithm).weights is not Algorithm.weights:
            self._record.view("policy.weights", "learner", algorithm.weights)
