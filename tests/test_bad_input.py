"""Bad input gets an error that says what was expected, what came and what to change; nothing half-done is left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet

SMALL = {"num_envs": 4, "hidden": (8,)}


def fails(
    expected: type[Exception], *messages: str, algorithm: Any = "ppo", env: Any = "CartPole-v1", **options: Any
) -> None:
    with pytest.raises(expected) as caught:
        motet.train(algorithm, env, **{"total_timesteps": 10_000, **options})
    for message in messages:
        assert message in str(caught.value)


def test_unknown_names_suggest_the_nearest() -> None:
    fails(motet.UnknownName, "no algorithm 'pp0'", "Did you mean 'ppo'?", algorithm="pp0")
    fails(motet.UnknownName, "no environment 'CartPol-v1'", "Did you mean 'CartPole-v1'?", env="CartPol-v1")
    fails(motet.UnknownName, "no preset 'corse'", "Did you mean 'coarse'?", plan="corse")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"discount": 1.5}, "discount must be at most 1, got 1.5"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"clip": -1.0, "update_epochs": 0}, "update_epochs must be at least 1, got 0; clip must be above 0, got -1.0"),
        ({"activation": "selu"}, "activation must be one of tanh, relu, leaky_relu, elu, gelu, silu, softplus, got"),
        ({"hidden": (0,)}, "hidden must be at least 1, got (0,)"),
        ({"num_steps": 3.5}, "num_steps must be a whole number, got 3.5"),
        ({"discount": "high"}, "discount must be a number, got 'high'"),
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(motet.BadOption) as caught:
        motet.PPO(**options)
    assert message in str(caught.value)


def test_what_is_not_made_yet_is_named() -> None:
    fails(motet.BadOption, "algorithm must be a name", "PPO is a class", algorithm=motet.PPO)
    fails(motet.BadOption, "env must be an id", env=3)
    fails(motet.BadOption, "plan must be", "call it, as coarse()", plan=motet.coarse)
    with pytest.raises(motet.BadOption, match="env must be an id"):
        motet.evaluate(None, 3)  # type: ignore[arg-type]
    with pytest.raises(motet.BadOption, match=r"policy must be a motet\.Policy"):
        motet.evaluate(None, "CartPole-v1")  # type: ignore[arg-type]


def test_an_option_of_a_class_that_is_no_dataclass() -> None:
    class Careless(motet.A2C):
        extra: int = motet.option(3, 1)

    with pytest.raises(motet.BadAlgorithm, match=r"Careless declares the option 'extra' but is no dataclass"):
        Careless()


def test_rows_that_do_not_divide_into_minibatches() -> None:
    algorithm = motet.PPO(num_envs=4, num_steps=5, num_minibatches=3)
    fails(motet.BadOption, "5 steps x 4 environments = 20 rows", "3 equal minibatches", algorithm=algorithm)


def test_fewer_steps_than_one_iteration() -> None:
    fails(motet.BadOption, "at least 2,048, got 100", "8 environments x 256 steps", total_timesteps=100)
    dqn = motet.DQN(num_envs=4, learning_starts=1000)
    fails(motet.BadOption, "at least 1,004", "a prefill of 1,000 steps", algorithm=dqn, total_timesteps=900)


def test_an_action_space_that_the_algorithm_cannot_serve() -> None:
    fails(motet.BadAlgorithm, "DQN chooses Discrete actions", "Box(shape=(1,)", algorithm="dqn", env="Pendulum-v1")


def test_a_replay_smaller_than_what_is_added() -> None:
    dqn = motet.DQN(num_envs=4, train_frequency=8, buffer_size=16, learning_starts=0)
    fails(motet.BadOption, "holds 16 items", "at least 32", algorithm=dqn)


def broken(**methods: Any) -> motet.Algorithm:
    """A2C with some methods replaced."""
    for name, method in methods.items():
        method.__name__ = name
    return type("Broken", (motet.A2C,), methods)(**SMALL)


def act_with(action: Any) -> Any:
    return lambda self, policy, memory, observation, key: motet.Decision(action)


@pytest.mark.parametrize(
    ("methods", "messages"),
    [
        (
            {"act": act_with(jnp.zeros((2,), jnp.int32))},
            ("Broken.act", "an action of Discrete(2), that is int32[] for one environment", "got int32[2]"),
        ),
        ({"act": act_with(jnp.zeros(()))}, ("int32[]", "got float")),
        ({"act": lambda self, p, m, o, k: 0}, ("Broken.act", "must return a motet.Decision", "int")),
        (
            {"act": lambda self, p, m, o, k: motet.Decision(jnp.zeros((), jnp.int32), memory=jnp.zeros(3))},
            ("Broken.act", "memory"),
        ),
        ({"apply": lambda self, state, _: state.params}, ("Broken.apply must return learner as it came", "differ")),
        ({"loop": lambda self, flow: None}, ("never calls flow.unroll",)),
        ({"loop": lambda self, flow: flow.unroll(self.act, steps=2)}, ("never calls flow.apply",)),
        ({"loop": lambda self, flow: flow.sample(3)}, ("flow.remember",)),
        ({"loop": lambda self, flow: [flow.unroll(self.act, steps=2) for _ in "ab"]}, ("twice",)),
        ({"loop": lambda self, flow: flow.call(self.gradient, 3)}, ("got 3 (int)", "fields")),
    ],
)  # fmt: skip
def test_a_method_that_returns_the_wrong_thing_is_named(methods: dict[str, Any], messages: tuple[str, ...]) -> None:
    fails(motet.BadAlgorithm, *messages, algorithm=broken(**methods))


def test_a_value_used_outside_its_loop_is_named() -> None:
    def loop(self: Any, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=2)
        with flow.repeat(2):
            gradients, _ = flow.call(self.gradient, rollout)
        flow.apply(self.apply, gradients)

    fails(motet.BadAlgorithm, "'gradient.0' outside the loop 'repeat'", algorithm=broken(loop=loop))


def test_a_report_that_is_no_dictionary_of_scalars() -> None:
    def loop(self: Any, flow: motet.Flow) -> None:
        flow.report(flow.unroll(self.act, steps=2).reward)

    fails(motet.BadAlgorithm, "flow.report takes a dictionary of scalars", algorithm=broken(loop=loop))


def test_an_environment_that_breaks_its_own_space() -> None:
    @dataclass(frozen=True)
    class Liar(motet.Environment):
        observation_space: motet.Box = motet.Box(0, 1, (3,))
        action_space: motet.Discrete = motet.Discrete(2)

        def reset(self, key: jax.Array) -> Any:
            return jnp.zeros(2), jnp.zeros(2)

        def step(self, state: Any, action: Any, key: jax.Array) -> Any:
            return state, jnp.zeros(2), jnp.zeros(()), jnp.zeros((), bool)

    fails(
        motet.BadEnvironment,
        "Liar.reset must return observation",
        "[3]",
        "got",
        "[2]",
        algorithm=motet.A2C(**SMALL),
        env=Liar(),
    )


@pytest.mark.parametrize("plan", [motet.anakin(), motet.coarse(2), motet.central(2)])
def test_numbers_that_blow_up_stop_the_run_and_keep_the_last_good_state(plan: motet.Plan, tmp_path: Path) -> None:
    class Explodes(motet.DQN):
        def apply(self, state: Any, gradients: Any) -> Any:
            new = super().apply(state, gradients)
            late = new.updates >= 7
            return jax.tree.map(lambda leaf: jnp.where(late, jnp.nan, leaf) if leaf.dtype.kind == "f" else leaf, new)

    algorithm = Explodes(num_envs=4, learning_starts=32, batch_size=8, gradient_steps=1, hidden=(8,))
    with pytest.raises(motet.Diverged) as caught:
        motet.train(algorithm, "CartPole-v1", plan, total_timesteps=16 + 4 * 12, run_dir=tmp_path / "run")
    message = str(caught.value)
    assert "iteration 7" in message or "iteration 6" in message  # seen in the loss or in the parameters
    assert "gradient" in message or "learner state" in message
    result = caught.value.result
    assert result is not None
    assert result.iterations < 7
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.state))
    assert (tmp_path / "run" / "policy.safetensors").exists()
    assert str(tmp_path / "run") in message
    assert result.policy(np.zeros(4)).shape == ()


def test_a_run_folder_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    fails(motet.BadOption, "already holds something", algorithm=motet.A2C(**SMALL), run_dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_wrong_observation_is_refused_by_a_policy() -> None:
    result = motet.train(motet.A2C(**SMALL), "CartPole-v1", total_timesteps=64)
    with pytest.raises(ValueError, match=r"expected one observation of Box\(shape=\(4,\)"):
        result.policy(np.zeros(3))


def test_a_damaged_policy_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(motet.MotetError, match=r"holds no policy\.json"):
        motet.Policy.load(tmp_path, motet.A2C)
    motet.train(motet.A2C(**SMALL), "CartPole-v1", total_timesteps=64, run_dir=tmp_path / "run")
    for name, text in (("policy.safetensors", b"nonsense"), ("policy.json", b"{}")):
        (tmp_path / "run" / name).write_bytes(text)
        with pytest.raises(motet.MotetError, match="is damaged"):
            motet.Policy.load(tmp_path / "run", motet.A2C)
