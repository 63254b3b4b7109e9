"""Whether JAX has started is asked without starting it, and a fork of a process that has used it says so."""

import subprocess
import sys

import jax

from motet.forked import SETTLED, has_started

FORKS = """
import os, sys, warnings
import jax, motet
from motet import forked
before = dict(jax.config.values)
assert not forked.has_started() and jax.config.values == before
def child():
    number = os.fork()
    if number:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    try:
        forked.refuse()
    except motet.MotetError:
        os._exit(1)
    os._exit(0)
assert child() == 0
jax.devices()
warnings.simplefilter("ignore")  # that JAX does not like it
assert child() == 1
forked.refuse()
"""


def test_a_fork_is_refused_only_if_jax_was_used_before() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr


def test_the_option_that_tells_is_there() -> None:
    jax.devices()
    assert SETTLED in jax.config.values and has_started()
