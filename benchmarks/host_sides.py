"""Sides with environments that are not written in JAX: pools alone, whole training runs, and the peers' runs."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

Sample = Callable[[], None]


def pool(env: str, envs: int, workers: int, steps: int) -> Sample:
    """A pool of motet's, stepped with random actions."""
    import motet
    from motet.flow.host import HostEnvironment, Opening

    made = motet.make(env)
    assert isinstance(made, HostEnvironment)
    opened = made.open(Opening(first=0, count=envs, seed=0, workers=workers))
    opened.reset()
    actions = _random_actions(envs)

    def sample() -> None:
        for step in range(steps):
            opened.step((actions[step % len(actions)],))

    return sample


def gymnasium_vector(env: str, envs: int, workers: int, steps: int) -> Sample:
    """Gymnasium's own vector environments: in one thread, or in so many processes.

    AsyncVectorEnv has one process for each environment, so with 8 workers it has 8 environments; it takes as many
    more steps as make the work equal.
    """
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    def make() -> Any:
        return gymnasium.make(env)

    if not workers:
        vector: Any = SyncVectorEnv([make] * envs)
        width = envs
    else:
        vector = AsyncVectorEnv([make] * workers)
        width = workers
    vector.reset(seed=0)
    actions = _random_actions(width)

    def sample() -> None:
        for step in range(steps * envs // width):
            vector.step(actions[step % len(actions)])

    return sample


_HELD = ExitStack()
atexit.register(_HELD.close)


def begin() -> None:
    """Measure under the conditions of `train`, for as long as the process lives."""
    from motet.engine.conditions import conditions

    _HELD.enter_context(conditions())


def _random_actions(envs: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (64, envs)).astype(np.int32)


def trained(
    algorithm: str,
    env: str,
    options: Mapping[str, Any],
    plan: Mapping[str, Any],
    iterations: int,
    sleep: float | None = None,
    latency: Mapping[str, float] | None = None,
) -> Sample:
    """A whole run of motet's under a plan, let go on for so many iterations at a time."""
    import jax

    import motet
    from motet import algorithms
    from motet.engine.assemble import Settings
    from motet.engine.place import devices_for
    from motet.engine.run import run
    from motet.flow.trace import trace
    from motet.plan.check import check
    from motet.plan.presets import preset

    begin()
    chosen = preset(**plan)
    bound = algorithms.find(algorithm)(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})
    made = motet.make(Sleeper(sleep)) if sleep else motet.make(env)
    graph = trace(bound, made, total_timesteps=1_000_000_000, cuts=chosen.cuts())
    check(graph, chosen, jax.device_count())
    gate, settings = Gate(iterations), Settings(latency=latency or {})
    go = partial(run, graph, chosen, devices_for(chosen), gate, 1_000_000_000, settings, delay=gate.wait)
    threading.Thread(target=gate.hold, args=(go,), daemon=True).start()
    return gate.sample


class Closed(Exception):
    """Ends a run that is wanted no more."""


class Gate:
    """Lets every replica of a run go on for a number of iterations, and then keeps it waiting."""

    def __init__(self, iterations: int):
        self.iterations, self.allowed, self.finished = iterations, 0, 0
        self.begun: dict[str, int] = {}
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self.closed = False

    def hold(self, run: Any) -> None:
        try:
            run()
        except BaseException as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def wait(self, who: str) -> int:
        """-> how many iterations may follow, for a run that takes many at once."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or max(self.begun.get(who, 0), self.finished) < self.allowed)
            if self.closed:
                raise Closed(f"{who} is wanted no more")
            self.begun[who] = self.begun.get(who, 0) + 1
            return self.allowed - self.finished

    def sample(self) -> None:
        with self.changed:
            self.allowed += self.iterations
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.finished >= self.allowed or self.error is not None)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """End the run, which waits, and see it gone."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.error is not None, timeout=30)

    def status(self, text: str) -> None: ...

    def rows(self, first: int, rows: Any) -> None:
        with self.changed:
            self.finished += len(rows)
            self.changed.notify_all()


class Sleeper:
    """Makes environments that take their time."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def __call__(self) -> Any:
        import gymnasium

        seconds = self.seconds

        class Sleeping(gymnasium.Wrapper):
            def step(self, action: Any) -> Any:
                time.sleep(seconds)
                return self.env.step(action)

        return Sleeping(gymnasium.make("CartPole-v1"))


def learning(algorithm: str, env: str, options: Mapping[str, Any], iterations: int) -> Sample:
    """The learner's part of an iteration alone, again and again on one rollout."""
    import jax

    import motet
    from motet import algorithms
    from motet.engine.assemble import Settings, assemble
    from motet.engine.place import devices_for
    from motet.engine.requests import Compute
    from motet.engine.serial import drive
    from motet.flow.trace import trace
    from motet.plan.schedule import Call

    begin()
    plan = motet.coarse(actors=1)
    bound = algorithms.find(algorithm)(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})
    graph = trace(bound, motet.make(env), total_timesteps=1_000_000_000, cuts=plan.cuts())
    assembly = assemble(graph, plan, devices_for(plan), Settings())
    drive(assembly, 1)
    learner = next(each for each in assembly.performers if each.worker.fragment == "learner")
    calls = [Compute(each, (0,)) for each in learner.worker.schedule.body if isinstance(each, Call)]
    held = learner.worker.variables
    rollout = {name: value for name, value in held.items() if name.startswith("rollout.")}

    def sample() -> None:
        for _ in range(iterations):
            held.update(rollout)
            for each in calls:
                held.update(learner.program(each)(held, learner.root, each.path))
            jax.block_until_ready(held)

    return sample


def stable_baselines(env: str, options: Mapping[str, Any], iterations: int, processes: bool) -> Sample:
    """Stable-Baselines3's PPO, on the same settings."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    def make() -> Any:
        return gymnasium.make(env)

    envs, steps = options["num_envs"], options["num_steps"]
    vector = SubprocVecEnv([make] * envs) if processes else DummyVecEnv([make] * envs)
    model = PPO(
        "MlpPolicy",
        vector,
        n_steps=steps,
        batch_size=envs * steps // options["num_minibatches"],
        n_epochs=options["update_epochs"],
        learning_rate=options["learning_rate"],
        gae_lambda=options["gae_lambda"],
        max_grad_norm=options["max_gradient_norm"],
        ent_coef=options["entropy_weight"],
        device="cpu",
        policy_kwargs={"net_arch": {"pi": list(options["hidden"]), "vf": list(options["hidden"])}},
    )
    return lambda: _learn(model, envs * steps * iterations)


def _learn(model: Any, steps: int) -> None:
    model.learn(total_timesteps=steps, reset_num_timesteps=False)


def rllib(env: str, options: Mapping[str, Any], iterations: int, runners: int) -> Sample:
    """RLlib's PPO, on the same settings, with environments in so many processes."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error")
    envs, steps = options["num_envs"], options["num_steps"]
    hidden = list(options["hidden"])
    config = (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=envs // runners, rollout_fragment_length=steps)
        .learners(num_learners=0)
        .training(
            lr=options["learning_rate"],
            gamma=options["discount"],
            lambda_=options["gae_lambda"],
            grad_clip=options["max_gradient_norm"],
            clip_param=options["clip"],
            entropy_coeff=options["entropy_weight"],
            vf_loss_coeff=options["value_weight"],
            use_kl_loss=False,
            train_batch_size_per_learner=envs * steps,
            minibatch_size=envs * steps // options["num_minibatches"],
            num_epochs=options["update_epochs"],
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=hidden, fcnet_activation=options["activation"], vf_share_layers=False
            )
        )
    )
    algorithm = config.build_algo()

    def sample() -> None:
        for _ in range(iterations):
            algorithm.train()

    return sample
