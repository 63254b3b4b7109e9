"""`Flow`: what `Algorithm.loop` is written with. Each call on it records a node or a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax

from motet.errors import BadAlgorithm
from motet.flow.acting import Acting, AnyEnvironment
from motet.flow.algorithm import Algorithm, Decision
from motet.flow.assemble import complete, first_learner, prefill_loop
from motet.flow.batches import Batching
from motet.flow.calls import Calling
from motet.flow.graph import Cut, Graph, Loop, Report, Roles
from motet.flow.record import Recorder
from motet.flow.replaying import STATE, Replaying
from motet.flow.values import Drawn, Rollout, Value, show


class Flow:
    """What `Algorithm.loop` is written with."""

    def __init__(self, algorithm: Algorithm, env: AnyEnvironment, cuts: Iterable[Cut]):
        self._algorithm, self._env = algorithm, env
        self._record = Recorder(type(algorithm).__name__, algorithm.num_envs, cuts)
        self._acting = Acting(self._record, algorithm, env)
        self._batching = Batching(self._record)
        self._calling = Calling(self._record)
        self._replaying = Replaying(self._record)
        self.prefill_steps = 0
        self._start_learner()

    def unroll(self, act: Callable[..., Decision], *, steps: int) -> Rollout:
        """Act and step every environment `steps` times -> a `Rollout` of [T, B] values."""
        return self._acting.unroll(act, steps)

    def call(self, method: Callable[..., Any], *values: Any) -> Any:
        """Run `method(weights, *values[, key][, keys])` -> handles of what it returns, one for each element of a tuple.

        What it returns without an environment axis is taken to be a mean over the batch. A parameter `key` gets one
        key for the whole batch; `keys` gets one for each row of it, [N], the same however the batch is cut.
        """
        return self._calling.call(method, values)

    def minibatches(
        self, batch: Any, *, epochs: int, count: int, sequences: bool = False
    ) -> AbstractContextManager[Any]:
        """Go `epochs` times through `batch` ([T, B] values) in `count` shuffled parts, each flattened to [N].

        With `sequences`, time is left as it is: parts are [T, B / count], and values of the start of the rollout,
        [B], become [B / count].
        """
        return self._batching.minibatches(batch, epochs, count, sequences)

    @contextmanager
    def repeat(self, count: int) -> Iterator[None]:
        """Run the body `count` times in each iteration."""
        with self._record.loop(self._record.name("repeat"), count, "update"):
            yield

    def apply(self, method: Callable[..., Any], *values: Any) -> None:
        """Run `method(state, *values) -> state`: the learner state changes."""
        self._calling.apply(method, values)

    def remember(self, values: Any, into: Any) -> None:
        """Add [T, B] values to the replay `into` (see motet.replay)."""
        self._replaying.remember(values, into)

    def sample(self, size: int) -> Drawn:
        """Draw `size` remembered items -> handles on `items`, [N] values of the structure that was remembered, and,
        from a prioritised replay, on their importance `weight` and their `index`."""
        return self._replaying.sample(size)

    def reprioritize(self, sample: Drawn, priorities: Any) -> None:
        """Give the items of `sample` new priorities, [N] numbers from 0 on, before the next draw. A replay without
        priorities has no use for them."""
        self._replaying.reprioritize(sample, priorities)

    def prefill(self, steps: int) -> None:
        """Before the first iteration, act and remember until `steps` environment steps are in the replay."""
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
        self._record.stack[-1].reported.append((metrics.name, metrics.name.split(".")[0]))

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
        learner = first_learner(record.title, loop)
        each = self.steps * record.num_envs
        prefill = prefill_loop(iteration.items, self.prefill_steps, each)
        self._replaying.check_filled(sum(loop.count for loop in prefill) * each + each)
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
            root=complete(root, learner, tuple(record.views)),
            reports=(
                *(Report(name, "sum", "env") for name in self._acting.sums()),
                *(Report(name, "mean", node) for name, node in iteration.reported),
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
