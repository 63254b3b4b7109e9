"""Where replays lie: what is missing or too small is said, and nothing is left behind."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from motet import replay as package
from motet.errors import BadOption, UnknownName
from motet.replay import Prioritised, Uniform, draw_bits
from motet.replay import host_store as host_module
from motet.replay import opencl as opencl_module
from tests.replay.cases import steps

EXAMPLE = steps(0, 2, 3)


def mapped() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:motet")


def test_the_size_is_stated() -> None:
    replay = Uniform(3_000_000)
    assert replay.nbytes(EXAMPLE, 3) == 3_000_000 * (8 + 4 + 4 + 1 + 8 + 1) + 4
    assert replay.statement(EXAMPLE, 3) == "3,000,000 items of 26 bytes, 74.39 MiB in all"


@pytest.mark.parametrize("where", ["xla", "host"])
def test_more_than_the_machine_has_is_refused_before_anything_is_taken(where) -> None:
    replay = Prioritised(10**12)
    with pytest.raises(
        BadOption, match=r"1,000,000,000,000 items needs .* GiB, but this machine has .* GiB; capacity="
    ) as told:
        replay.init(EXAMPLE, 3) if where == "xla" else replay.open(EXAMPLE, 3, where)
    fits = int(str(told.value).split("capacity=")[1].split(" ")[0].replace(",", ""))
    assert Prioritised(fits).nbytes(EXAMPLE, 3) < host_module.machine_memory()


def test_more_than_the_device_has_is_refused() -> None:
    with pytest.raises(BadOption, match=r"but the OpenCL device .* has .* GiB; capacity="):
        Prioritised(10**12).open(EXAMPLE, 3, "opencl")
    big = {"x": jax.ShapeDtypeStruct((1, 1, 2**20), np.uint8)}
    nearly_all = Uniform(opencl_module.Device().memory // 2**20 - 8)
    with pytest.raises(BadOption, match=r"but a single array of the OpenCL device .* has .* GiB; capacity="):
        nearly_all.open(big, 1, "opencl")


@pytest.mark.parametrize("replay", [Uniform(60), Prioritised(60)], ids=["uniform", "prioritised"])
def test_a_closed_replay_leaves_nothing_behind(replay) -> None:
    gc.collect()
    before = mapped()
    with replay.open(EXAMPLE, 3, "host") as store:
        store.add(EXAMPLE)
        drawn = store.sample(draw_bits(jax.random.key(0), 0, 4))
        assert mapped() > before
    store.close()
    gc.collect()
    assert mapped() == before
    assert drawn.items.reward.shape == (4,)  # what was drawn is a copy


def test_without_a_driver_the_error_says_what_to_install(monkeypatch) -> None:
    cl = pytest.importorskip("pyopencl")
    monkeypatch.setattr(cl, "get_platforms", list)
    with pytest.raises(BadOption, match=r"no OpenCL device.*pip install 'motet\[opencl\]'"):
        Uniform(60).open(EXAMPLE, 3, "opencl")

    def refuse():
        raise cl.LogicError("clGetPlatformIDs", -1001, "")

    monkeypatch.setattr(cl, "get_platforms", refuse)
    with pytest.raises(BadOption, match=r"No OpenCL driver answers.*pip install 'motet\[opencl\]'"):
        Uniform(60).open(EXAMPLE, 3, "opencl")


def test_a_driver_that_cannot_compile_is_named_with_what_it_said(monkeypatch) -> None:
    cl = pytest.importorskip("pyopencl")

    class Program:
        def __init__(self, *_): ...
        def build(self):
            raise cl.RuntimeError("Build on here:\nerror: unknown target CPU 'new'\nfailed")

    monkeypatch.setattr(cl, "Program", Program)
    said = r"The OpenCL driver of .* cannot compile .*: error: unknown target CPU 'new'\. .*motet\[intel-opencl\]"
    with pytest.raises(BadOption, match=said):
        Uniform(60).open(EXAMPLE, 3, "opencl")


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(BadOption, match="no OpenCL device 99: opencl:0 is"):
        Uniform(60).open(EXAMPLE, 3, "opencl:99")


@pytest.mark.parametrize(("module", "where", "extra"), [("numba", "host", "replay"), ("pyopencl", "opencl", "opencl")])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, module, where, extra) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "motet.replay.tree_loops", raising=False)
    monkeypatch.delattr(package, "tree_loops", raising=False)
    with pytest.raises(BadOption, match=rf"needs {module}, which is not installed.*pip install 'motet\[{extra}\]'"):
        Prioritised(60).open(EXAMPLE, 3, where)


def test_loops_are_compiled_where_nothing_can_be_kept(monkeypatch) -> None:
    from motet.replay import tree_loops

    def njit(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr(tree_loops, "njit", njit)
    assert tree_loops.loop(abs) == (abs, {"nogil": True})


@pytest.mark.parametrize("where", ["gpu", "host:1", "opencl:x"])
def test_an_unknown_place_is_refused(where) -> None:
    with pytest.raises(UnknownName, match="place for a replay"):
        Uniform(60).open(EXAMPLE, 3, where)


def test_a_uniform_replay_has_no_priorities() -> None:
    with Uniform(60).open(EXAMPLE, 3, "host") as store, pytest.raises(BadOption, match="use Prioritised"):
        store.update(np.zeros((1, 2), np.int32), np.ones(1, np.float32))
