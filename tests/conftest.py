"""A strict JAX: several virtual devices, no silent rank promotion, compiled programs kept between runs; for the rest
as `train` has it."""

import gc
import os
import signal
from pathlib import Path

# A shell starts what runs in the background with Ctrl-C ignored, and so would be whatever tests start: those that
# interrupt themselves or others would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# One folder for all of pytest's processes. With a bound on its size JAX locks it (by filelock); without one it may
# read an entry of which another process has not written all. Then it looks at all entries whenever it adds one, so
# that keeping what compiles quickly would take longer than to compile it again.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "programs"))
os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(4 * 2**30))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

# A planner that measures before each run would measure tests beside each other; those of the planner ask for it.
os.environ.setdefault("MOTET_PROFILE", "0")

import jax
import pytest

from benchmarks import opencl_driver
from tests import production
from tests.sharing import sharing

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")
production.prepare()
opencl_driver.use_what_works()
gc.set_threshold(100_000)  # traces are many small objects that live: looking through them often finds nothing


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs all tests of a file, unless they say otherwise: they share what was traced, compiled, imported
    and started for the first of them."""
    for item in items:
        if not any(item.iter_markers("xdist_group")) and not any(item.iter_markers("apart")):
            item.add_marker(sharing(item.nodeid.split("::")[0]))
