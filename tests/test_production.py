"""The settings under which the suite runs are those under which users train."""

import jax

import motet
from tests.production import SETTINGS


def test_training_changes_no_setting_that_the_tests_did_not_begin_with() -> None:
    algorithm = motet.A2C(num_envs=2, num_steps=2, hidden=(4,))
    motet.train(algorithm, "CartPole-v1", motet.anakin(), total_timesteps=4)
    assert dict(jax.config.values) == SETTINGS


def test_computations_run_in_the_thread_that_asks() -> None:
    assert SETTINGS["jax_cpu_enable_async_dispatch"] is False
