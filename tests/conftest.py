"""A strict JAX: several virtual devices, no silent rank promotion, and compiled programs kept between runs."""

import os
from pathlib import Path

# A folder for each of pytest's processes: JAX may read an entry of which another process has not written all.
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(
    os.environ.get("JAX_COMPILATION_CACHE_DIR", Path(__file__).parents[1] / ".cache" / "xla"),
    os.environ.get("PYTEST_XDIST_WORKER", ""),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

import jax

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")
