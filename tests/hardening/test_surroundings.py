"""Processes in unusual surroundings: no home, no output, a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import pytest

import motet
from motet.forked import refuse

SHORT = ["--num-envs", "4", "--num-steps", "5", "--hidden", "4", "--total-timesteps", "40", "--preset", "anakin",
         "--evaluate-episodes", "1", "--run-dir", "run"]  # fmt: skip
MOTET = [sys.executable, "-c", "import sys; from motet.cli import main; sys.exit(main())"]


def test_closed_streams_are_no_obstacle(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$0" "$@" >&- 2>&-', *MOTET, "train", "a2c", "CartPole-v1", *SHORT]
    assert subprocess.run(command, cwd=tmp_path, timeout=120).returncode == 0
    assert (tmp_path / "run" / "policy.safetensors").exists()


def test_nobody_needs_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        tiny = motet.A2C(num_envs=4, num_steps=5, hidden=(4,))
        assert motet.train(tiny, "CartPole-v1", motet.anakin(), total_timesteps=40).steps == 40
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_fork_after_jax_is_refused_with_the_reason() -> None:
    jax.devices()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that JAX does not like it
        child = os.fork()
    if not child:
        try:
            motet.train("a2c", "CartPole-v1", total_timesteps=10_000)
            os.write(write, b"trained")
        except motet.MotetError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        words = said.read()
    os.waitpid(child, 0)
    assert f"forked from process {os.getpid()}, which had used JAX" in words
    refuse()  # here all is well
