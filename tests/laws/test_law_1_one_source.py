"""An algorithm's file says nothing of where it runs."""

from pathlib import Path

import pytest

import motet.algorithms
from tests.laws.places import places

FILES = sorted(Path(motet.algorithms.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_algorithm_names_a_place(path: Path) -> None:
    assert not places(path.read_text())


VIOLATIONS = r"""
jax.jit(f)
from jax import jit as quick
@jax.jit\ndef f(x): ...
@partial(jit, static_argnums=0)\ndef f(x): ...
getattr(jax, "jit")(f)
jax.pmap(f)
jax.shard_map(f, mesh=m, in_specs=s, out_specs=s)
from jax.experimental.shard_map import shard_map
jax.experimental.multihost_utils.sync_global_devices("x")
jax.vmap(f, axis_name="i")
jax.vmap(f, spmd_axis_name="i")
jax.lax.psum(x, "i")
jax.lax.pmean(x, "i")
jax.lax.pmax(x, "i")
jax.lax.ppermute(x, "i", pairs)
jax.lax.all_gather(x, "i")
jax.lax.all_to_all(x, "i", 0, 0)
jax.lax.axis_index("i")
from jax.lax import all_gather as everyone
from jax.sharding import Mesh
from jax.sharding import NamedSharding, PartitionSpec as P
jax.make_mesh((2,), ("i",))
jax.device_put(x)
jax.device_get(x)
jax.devices()
jax.local_devices()
jnp.zeros(3, device=d)
x.device
x.addressable_shards
jax.process_index()
jax.distributed.initialize()
jax.default_backend()
x.block_until_ready()
jax.pure_callback(f, t, x)
from jax.experimental import io_callback
jax.experimental.io_callback(f, t, x)
jax.debug.callback(f, x)
jax.debug.print("{}", x)
from jax import debug
import threading
import threading as t
import multiprocessing.shared_memory
from multiprocessing import Process
import subprocess
import queue
import ray
import socket
import concurrent.futures
from concurrent.futures import ThreadPoolExecutor
ProcessPoolExecutor(2)
ThreadPoolExecutor()
Thread(target=f)
os.fork()
importlib.import_module("multiprocessing.pool")
__import__("threading")
def act(self, policy, replica): ...
def loop(self, flow, num_replicas=1): ...
class DeviceBatch: ...
self.rank = 0
local_rank
world_size
""".strip().splitlines()

INNOCENT = '''
"""Runs the same on every device, in every thread; jit is motet's business."""
jnp.mean(x, axis=0)
jax.vmap(f, in_axes=(0, None))
jax.lax.platform_dependent(x, cpu=f, default=g)
def preprocess(self, observation): ...  # no process
ranks = jnp.argsort(jnp.argsort(returns))
array = jnp.asarray([1])
self.log(f"no queue, no mesh")
jax.lax.axis_size_of_nothing
from motet.flow.batch import batch_mean
event_count = 3
'''.strip().splitlines()


@pytest.mark.parametrize("line", VIOLATIONS)
def test_the_lint_sees_what_names_a_place(line: str) -> None:
    assert places(line.replace("\\n", "\n"))


@pytest.mark.parametrize("line", INNOCENT)
def test_the_lint_sees_nothing_else(line: str) -> None:
    assert places(line) == set()


def test_every_file_of_an_algorithm_is_looked_at() -> None:
    assert {"ppo", "dqn", "impala", "networks", "convolution"} <= {path.stem for path in FILES}
