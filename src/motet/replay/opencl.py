"""Replay in the memory of an OpenCL device: items and trees stay there, only what is drawn comes back.

Any device with an OpenCL driver will do: a GPU, an FPGA card, or the CPU through PoCL.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jax
import numpy as np

from motet.errors import BadOption
from motet.replay.contract import Replay
from motet.replay.prioritised import Prioritised
from motet.replay.ring import Types
from motet.replay.size import check_fits, tree_bytes
from motet.replay.store import Store
from motet.replay.tree import TreeShape

INSTALL = (
    "pip install 'motet[opencl]' brings PoCL, which runs OpenCL on the CPU; for a GPU install its vendor's driver."
)


class OpenCLReplay(Store):
    """Remembers on an OpenCL device."""

    def __init__(self, replay: Replay, example: Any, num_envs: int, number: int = 0):
        device = Device(number)
        whole = Types.of(example).addition(num_envs)
        layout = jax.eval_shape(lambda: replay.empty(whole, num_envs))
        where = f"the OpenCL device {device.name}"
        check_fits(tree_bytes(layout), replay.capacity, device.memory, where)
        largest = max(map(tree_bytes, jax.tree.leaves(layout)))
        check_fits(largest, replay.capacity, device.largest_array, f"a single array of {where}")
        super().__init__(replay, example, num_envs, device)


def _built(cl: Any, context: Any, source: str, device: Any) -> Any:
    """The kernels as a program. Some drivers tell what they did, which pyopencl takes for a warning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(context, source).build()
    except cl.RuntimeError as error:
        said = next((line for line in str(error).splitlines() if "error" in line.lower()), str(error).splitlines()[0])
        raise BadOption(
            f"The OpenCL driver of {device.name} ({device.platform.name} {device.platform.version}) cannot compile the "
            f"replay's kernels: {said.strip()}. A PoCL that is older than the processor does not know it. Install a "
            "newer driver, as pip install 'motet[intel-opencl]' has for processors (docs/replay.md), or keep the "
            "replay in the host's memory with replay='host'."
        ) from error


@dataclass
class DeviceArray:
    """An array of a device."""

    buffer: Any
    shape: tuple[int, ...]
    dtype: np.dtype


class Device:
    """An OpenCL device with the replay's kernels: it keeps arrays and trees."""

    def __init__(self, number: int = 0):
        self.cl, device = _find_device(number)
        cl = self.cl
        self.name, self.memory, self.largest_array = device.name, device.global_mem_size, device.max_mem_alloc_size
        self.group = min(256, device.max_work_group_size)
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        source = files("motet.replay").joinpath("kernels.cl").read_text()
        program = _built(cl, self.context, source, device)
        names = ("put_words", "put_bytes", "take_words", "take_bytes", "update", "join", "find")
        self.kernels = {name: cl.Kernel(program, name) for name in names}
        self._buffers: list[Any] = []

    def run(self, kernel: str, size: tuple[int, ...], group: tuple[int, ...] | None, *arguments: Any) -> None:
        self.kernels[kernel](self.queue, size, group, *arguments)

    def upload(self, values: np.ndarray) -> Any:
        flags = self.cl.mem_flags
        return self.cl.Buffer(self.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(values))

    def download(self, buffer: Any, values: np.ndarray) -> np.ndarray:
        self.cl.enqueue_copy(self.queue, values, buffer)
        return values

    def scratch(self, size: int) -> Any:
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size)

    def array(self, aval: jax.ShapeDtypeStruct) -> DeviceArray:
        size = max(tree_bytes(aval), 1)
        buffer = self.scratch(size)
        self.cl.enqueue_fill_buffer(self.queue, buffer, np.uint8(0), 0, size)
        self._buffers.append(buffer)
        return DeviceArray(buffer, aval.shape, np.dtype(aval.dtype))

    def put(self, array: DeviceArray, place: np.ndarray, column: np.ndarray, values: np.ndarray) -> None:
        width, unit = _words(array)
        if place.size and width:
            entry = self.upload((place * array.shape[1] + column).astype(np.int32))
            self.run(f"put_{unit}", (width, place.size), None, array.buffer, entry, self.upload(values))

    def take(self, array: DeviceArray | np.ndarray, place: np.ndarray, column: np.ndarray) -> np.ndarray:
        if isinstance(array, np.ndarray):
            return array[place, column]
        width, unit = _words(array)
        values = np.empty((*place.shape, *array.shape[2:]), array.dtype)
        if values.size:
            entry, result = self.upload((place * array.shape[1] + column).astype(np.int32)), self.scratch(values.nbytes)
            self.run(f"take_{unit}", (width, place.size), None, array.buffer, entry, result)
            self.download(result, values)
        return values

    def read(self, array: DeviceArray) -> np.ndarray:
        values = np.empty(array.shape, array.dtype)
        return self.download(array.buffer, values) if values.size else values

    def write(self, array: DeviceArray, values: np.ndarray) -> None:
        if values.size:
            self.cl.enqueue_copy(self.queue, array.buffer, np.ascontiguousarray(values, array.dtype))

    def tree(self, replay: Prioritised, rows: int, columns: int) -> DeviceTree:
        return DeviceTree(self, replay.tree_shape(rows), columns)

    def close(self) -> None:
        for buffer in self._buffers:
            buffer.release()
        self._buffers.clear()


class DeviceTree:
    """Sum trees on a device, [columns, nodes]."""

    def __init__(self, device: Device, shape: TreeShape, columns: int):
        self.device, self.shape = device, shape
        self._top = TreeShape(columns, shape.fan_out)
        self._array = device.array(jax.ShapeDtypeStruct((columns, shape.nodes), np.float32))
        self._joined = device.array(jax.ShapeDtypeStruct((self._top.nodes,), np.float32))
        self._offsets, self._top_offsets, self._top_counts = (
            device.upload(np.asarray(each, np.int32)) for each in (shape.offsets, self._top.offsets, self._top.counts)
        )

    @property
    def array(self) -> np.ndarray:
        """A copy of all nodes."""
        return self.device.download(self._array.buffer, np.empty(self._array.shape, np.float32))

    def load(self, array: np.ndarray) -> None:
        self.device.write(self._array, array)

    def update(self, column: np.ndarray, leaf: np.ndarray, value: np.ndarray) -> None:
        """Set leaves [N] and all that is above them; the last entry for a leaf counts, those of -1 are left out."""
        keep = _last_entries(column.astype(np.int64) * self.shape.leaves + leaf, leaf >= 0)
        if not keep.size:
            return
        bits = np.asarray(value, np.float32).view(np.int32)
        entries = self.device.upload(np.stack([column[keep], leaf[keep], bits[keep]]).astype(np.int32))
        depth, shift, nodes = np.int32(self.shape.depth), np.int32(self.shape.shift), np.int32(self.shape.nodes)
        group = (self.device.group,)
        self.device.run(
            "update", group, group, self._array.buffer, self._offsets, depth, shift, nodes, entries, np.int32(keep.size)
        )

    def total(self) -> np.float32:
        """The sum of all trees."""
        self._join()
        return self.device.download(self._joined.buffer, np.empty(self._joined.shape, np.float32))[0]

    def find(self, share: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where `share` [N], each from [0, 1], of the sum of all trees ends -> columns, leaves and their values."""
        self._join()
        top, shape, found = self._top, self.shape, self.device.scratch(3 * 4 * share.size)
        above = (self._joined.buffer, self._top_offsets, np.int32(top.depth))
        below = (self._array.buffer, self._offsets, np.int32(shape.depth), np.int32(shape.shift), np.int32(shape.nodes))
        self.device.run("find", share.shape, None, *above, *below, self.device.upload(share), found)
        column, leaf, bits = self.device.download(found, np.empty((3, share.size), np.int32))
        return column, leaf, bits.view(np.float32)

    def _join(self) -> None:
        group, top = (self.device.group,), self._top
        numbers = (np.int32(top.depth), np.int32(top.shift))
        tree = (self._array.buffer, np.int32(self.shape.nodes))
        self.device.run("join", group, group, self._joined.buffer, self._top_offsets, self._top_counts, *numbers, *tree)


def _last_entries(place: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The numbers of those counted entries [N] that no later one is for the same place of."""
    entry = np.flatnonzero(counted)[::-1]
    return entry[np.unique(place[entry], return_index=True)[1]]


def _words(array: DeviceArray) -> tuple[int, str]:
    """How wide an entry is: in words of four bytes where that comes out even, else in bytes."""
    size = int(np.prod(array.shape[2:], dtype=np.int64)) * array.dtype.itemsize
    return (size // 4, "words") if size % 4 == 0 else (size, "bytes")


def _find_device(number: int) -> tuple[Any, Any]:
    """pyopencl and the device of that number, over all platforms."""
    try:
        import pyopencl as cl
    except ImportError as error:
        raise BadOption(f"A replay on OpenCL needs pyopencl, which is not installed. {INSTALL}") from error
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise BadOption(f"No OpenCL driver answers ({error}). {INSTALL}") from error
    if not devices:
        raise BadOption(f"There is no OpenCL device on this machine. {INSTALL}")
    if number >= len(devices):
        names = ", ".join(f"opencl:{place} is {device.name}" for place, device in enumerate(devices))
        raise BadOption(f"There is no OpenCL device {number}: {names}. Give one of these.")
    return cl, devices[number]
