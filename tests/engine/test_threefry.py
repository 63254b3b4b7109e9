"""The hash behind all random numbers is JAX's own, to the bit."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from motet.engine.cpu.hashes import threefry
from motet.engine.cpu.rules import lowering
from motet.engine.cpu.switch import enabled

KNOWN = [
    # The test vectors of Random123, by the authors of the hash: key, counter, result.
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
JAX_ALONE = """
import sys, numpy, jax, jax.numpy as jnp
from jax.extend.random import threefry_2x32
def hashed(entry):  # it hashes pairs of one key; half of an array is x, half y
    return threefry_2x32(entry[:2], entry[2:])
numpy.save(sys.argv[2], jax.jit(jax.vmap(hashed))(jnp.asarray(numpy.load(sys.argv[1]))))
"""


@pytest.mark.parametrize(("key", "counter", "result"), KNOWN)
def test_our_hash_gives_the_published_vectors(key, counter, result) -> None:
    got = threefry(*(np.asarray([number], np.uint32) for number in (*key, *counter)))
    assert tuple(int(np.asarray(half)[0]) for half in got) == result


def test_our_hash_is_the_one_of_jax(tmp_path: Path) -> None:
    """JAX's in a process that has never heard of motet, so that it is JAX's own whatever happened in this one."""
    chance = np.random.default_rng(0)
    rows = chance.integers(0, 2**32, (1000, 4), np.uint32)  # key1, key2, x, y
    edges = np.asarray([0, 1, 2**31 - 1, 2**31, 2**32 - 1], np.uint32)
    rows = np.concatenate([rows, np.stack(np.meshgrid(*[edges] * 4), -1).reshape(-1, 4)])
    np.save(tmp_path / "in.npy", rows)
    command = [sys.executable, "-c", JAX_ALONE, str(tmp_path / "in.npy"), str(tmp_path / "out.npy")]
    subprocess.run(command, check=True, timeout=120)
    np.testing.assert_array_equal(np.stack(threefry(*rows.T), 1), np.load(tmp_path / "out.npy"))


def test_keys_drawn_here_are_those_of_jax() -> None:
    """What a seed gives was written down once: whoever hashes, and in whatever way, gives these bits."""
    key = jax.random.fold_in(jax.random.key(7), 11)
    assert jax.random.key_data(key).tolist() == [2796958904, 1911163382]
    assert jax.random.bits(key, (3,)).tolist() == [426643383, 2182656487, 2486070250]


@pytest.mark.skipif(not enabled(), reason="the quick ways are switched off")
def test_programs_are_lowered_with_our_hash_and_jax_is_left_as_it_is() -> None:
    traced = jax.jit(jax.random.bits).trace(jax.random.key(3))
    ours, theirs = traced.lower(**lowering(eigen=False)), traced.lower()
    assert "while" not in ours.as_text()
    assert "while" in theirs.as_text()
    assert int(ours.compile()(jax.random.key(3))) == int(theirs.compile()(jax.random.key(3)))
