"""A program that was compiled for one CPU device, loaded for another: replicas need not compile it again.

JAX compiles for each device anew, and on CPUs its persistent cache tells devices apart too. The machine code is the
same, so it is taken out of the first program and loaded with the other device in the place of the first.
"""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from pickle import PicklingError
from typing import Any

import jax
import numpy as np

from motet.engine.cpu.switch import enabled


@dataclass(frozen=True)
class CompiledProgram:
    """A program and how it came about."""

    program: jax.stages.Compiled
    device: Any
    """The first of the devices that it was compiled for."""
    options: dict[str, str | bool]
    """The compiler's."""
    new: bool
    """Whether it was compiled, not found in the persistent cache: what was read from there lacks the code to copy."""


@dataclass(frozen=True)
class Template:
    """What programs of other devices are made from."""

    made: CompiledProgram
    packed: tuple[bytes, Any, Any] | None
    """The program's code and the structure of its arguments and results; None: it cannot be copied."""

    def clone(self, device: Any) -> jax.stages.Compiled | None:
        """The program for another device, if there can be one."""
        unpacker = _unpacker()
        if self.packed is None or unpacker is None:
            return None
        code, in_tree, out_tree = self.packed
        try:
            executable, arguments, no_kwargs = unpacker(io.BytesIO(code), self.made, device).load()
            arguments = in_tree.unflatten(arguments)
            return jax.stages.Compiled(executable.load(), [], arguments, out_tree, no_kwargs=no_kwargs)
        except (AttributeError, TypeError, KeyError):  # another version of JAX: it is compiled again
            return None


def template(made: CompiledProgram) -> Template:
    """Take a copy of a program that was not called yet: XLA does not give out one that has begun to sort."""
    if not made.new or not enabled():
        return Template(made, None)
    from jax.experimental import serialize_executable

    try:
        return Template(made, serialize_executable.serialize(made.program))
    except (jax.errors.JaxRuntimeError, NotImplementedError, ValueError, TypeError, AttributeError, PicklingError):
        return Template(made, None)  # as each layer says that it cannot


@functools.cache
def _unpacker() -> Any | None:
    """Reads a program and puts another device where its own one was; None where JAX keeps programs in another way."""
    try:
        from jax.experimental.serialize_executable import _JaxPjrtUnpickler
        from jax.extend.backend import get_compile_options
    except ImportError:
        return None

    class Unpacker(_JaxPjrtUnpickler):
        def __init__(self, file: io.BytesIO, made: CompiledProgram, device: Any):
            super().__init__(file, device.client, (device,))
            self.devices_by_id = {made.device.id: device}
            self.options = get_compile_options(
                num_replicas=1,
                num_partitions=1,
                device_assignment=np.array([[device.id]]),
                env_options_overrides=made.options,  # type: ignore[arg-type]
                backend=device.client,
            )

        def persistent_load(self, pid: Any) -> Any:
            if pid[0] == "exec":
                return self.backend.deserialize_executable(pid[1], self.execution_devices, self.options)
            return super().persistent_load(pid)

    return Unpacker
