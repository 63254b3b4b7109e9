"""The settings under which the suite runs are those under which users train, and are put back after that."""

import os
import subprocess
import sys
from pathlib import Path

import jax

import motet
from motet.engine import cache
from motet.engine.cpu import enabled
from motet.engine.cpu.prepare import prepared
from tests.production import SETTINGS

ASYNC = "jax_cpu_enable_async_dispatch"


def test_training_changes_no_setting_for_good() -> None:
    algorithm = motet.A2C(num_envs=2, num_steps=2, hidden=(4,))
    motet.train(algorithm, "CartPole-v1", motet.anakin(), total_timesteps=4)
    assert dict(jax.config.values) == SETTINGS["while"]


def test_computations_run_in_the_thread_that_asks_while_motet_trains() -> None:
    assert SETTINGS["while"][ASYNC] is (not enabled() and SETTINGS["before"][ASYNC])


def test_all_settings_are_put_back(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    before = {name: SETTINGS["before"][name] for name in (ASYNC, "jax_compilation_cache_dir")}
    with jax.numpy_rank_promotion("raise"):
        folder = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
        jax.config.update(ASYNC, before[ASYNC])
        jax.config.update("jax_compilation_cache_dir", None)
        try:
            with cache.kept(), prepared():
                assert str(jax.config.jax_compilation_cache_dir).startswith("/nowhere")  # type: ignore[attr-defined]
                assert jax.config.values[ASYNC] is (not enabled() and before[ASYNC])
            assert jax.config.jax_compilation_cache_dir is None  # type: ignore[attr-defined]
            assert jax.config.values[ASYNC] == before[ASYNC]
        finally:
            jax.config.update("jax_compilation_cache_dir", folder)
            jax.config.update(ASYNC, SETTINGS["while"][ASYNC])


def test_runs_in_two_threads_put_back_what_was_there_before_both() -> None:
    """The first to begin is the first to end: the other must neither lose the settings nor take them for JAX's own."""
    code = """
import threading, jax
from motet.engine.conditions import conditions
def settings():
    return jax.config.values["jax_cpu_enable_async_dispatch"], jax.config.jax_compilation_cache_dir
before, begun, ended, seen = settings(), threading.Event(), threading.Event(), []
def second():
    with conditions():
        begun.set()
        ended.wait(60)
        seen.append(settings())
thread = threading.Thread(target=second)
with conditions():
    within = settings()
    thread.start()
    begun.wait(60)
ended.set()
thread.join()
assert seen == [within] and within != before, (seen, within, before)
assert settings() == before, settings()
"""
    told = ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in told}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_what_trains_and_what_evaluates_is_kept_for_the_next_process(tmp_path: Path) -> None:
    code = """
import motet
result = motet.train(motet.A2C(num_envs=4, num_steps=4), "CartPole-v1", total_timesteps=32, progress=False)
motet.evaluate(result.policy, "CartPole-v1", episodes=4)
"""
    told = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in told}
    subprocess.run([sys.executable, "-c", code], env={**environment, "HOME": str(tmp_path)}, check=True)
    kept = {each.name.split("-")[0] for each in (tmp_path / ".cache" / "motet" / "xla").iterdir()}
    assert kept >= {"jit__many", "jit__play"}
