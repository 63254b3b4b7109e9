"""Machines that are not here, with where their numbers are from. What is assumed, and not published, is said to be."""

from __future__ import annotations

from collections.abc import Callable

from motet.errors import UnknownName
from motet.plan.machine import Connection, Device, Machine

GB, TERA = 1e9, 1e12


def processor(name: str, memory: float, count: int = 1) -> Device:
    """The cores of a host, each as assumed where nobody has measured it: 50 GFLOP/s, half of them reached, 8 W."""
    return Device(
        kind="cpu", name=name, memory=memory, count=count, peak=50e9, bandwidth=10 * GB, watts=8.0, latency=0.3e-6,
        launch=20e-6, efficiency=0.5,
    )  # fmt: skip


def tpu_v3(hosts: int, name: str) -> Machine:
    core = Device(
        kind="tpu", name="TPU v3 core", count=8, memory=16 * 2**30, peak=61.5 * TERA, bandwidth=450 * GB, watts=110.0,
        idle_watts=61.5, latency=1e-6, launch=30e-6, efficiency=0.4,
    )  # fmt: skip
    return Machine(
        name=name,
        hosts=hosts,
        cores=48,
        memory=334e9,
        devices=(core, processor("core of the host", 334e9)),
        connections={
            "host": Connection(20e-6, 12 * GB),
            "devices": Connection(1e-6, 80 * GB),
            "network": Connection(2e-6, 80 * GB),
        },
        idle_watts=100.0,
        source=(
            "cloud.google.com/tpu/docs/v3: a chip has two cores, 123 TFLOP/s in bfloat16, 32 GiB at 900 GB/s, and "
            "draws 123 to 262 W, 220 W on average; half of that for a core. Chips of a pod are joined directly, "
            "hosts included. Assumed: 80 GB/s to a neighbour, 1 to 2 us, 40% of the peak, 48 usable cores for 8 "
            "devices."
        ),
    )


def tpu_v4(hosts: int, name: str) -> Machine:
    chip = Device(
        kind="tpu", name="TPU v4 chip", count=4, memory=32 * 2**30, peak=275 * TERA, bandwidth=1200 * GB, watts=170.0,
        idle_watts=90.0, latency=1e-6, launch=30e-6, efficiency=0.4,
    )  # fmt: skip
    return Machine(
        name=name,
        hosts=hosts,
        cores=120,
        memory=400e9,
        devices=(chip, processor("core of the host", 400e9)),
        connections={
            "host": Connection(20e-6, 12 * GB),
            "devices": Connection(1e-6, 100 * GB),
            "network": Connection(2e-6, 100 * GB),
        },
        idle_watts=150.0,
        source=(
            "cloud.google.com/tpu/docs/v4: 275 TFLOP/s in bfloat16, 32 GiB at 1,200 GB/s, 90 to 192 W, 170 W on "
            "average; JAX shows a chip as one device, four on a host; v4-8 counts cores and is one host. Assumed: "
            "100 GB/s to a neighbour, 1 to 2 us, 40% of the peak, 120 usable cores."
        ),
    )


def a100_node() -> Machine:
    card = Device(
        kind="gpu", name="A100 SXM 80 GB", count=8, memory=80 * GB, peak=19.5 * TERA, bandwidth=2039 * GB, watts=400.0,
        idle_watts=55.0, latency=3e-6, launch=10e-6, efficiency=0.6,
    )  # fmt: skip
    return Machine(
        name="a100-node",
        cores=128,
        memory=1000e9,
        devices=(card, processor("core of the host", 1000e9)),
        connections={"host": Connection(10e-6, 25 * GB), "devices": Connection(3e-6, 300 * GB)},
        idle_watts=300.0,
        source=(
            "NVIDIA's data sheet of the A100: 19.5 TFLOP/s in float32 without tensor cores, 80 GB at 2,039 GB/s, "
            "400 W, NVLink 300 GB/s each way. Assumed: 128 cores, PCIe 4, 55 W idle, 60% of the peak, 3 us for an "
            "operation."
        ),
    )


def p100_cluster() -> Machine:
    card = Device(
        kind="gpu", name="P100 PCIe 16 GB", count=4, memory=16 * GB, peak=9.3 * TERA, bandwidth=732 * GB, watts=250.0,
        idle_watts=30.0, latency=5e-6, launch=15e-6, efficiency=0.6,
    )  # fmt: skip
    return Machine(
        name="p100-cluster",
        hosts=16,
        cores=24,
        memory=448e9,
        devices=(card, processor("core of the host", 448e9)),
        connections={
            "host": Connection(10e-6, 12 * GB),
            "devices": Connection(10e-6, 10 * GB),
            "network": Connection(50e-6, 1.25 * GB),
        },
        idle_watts=150.0,
        source=(
            "MSRL (Zhu et al., ATC 2023): 16 virtual machines with 4 P100 each, joined by Ethernet of 10 Gbit/s; "
            "NVIDIA's data sheet of the P100 for PCIe: 9.3 TFLOP/s in float32, 16 GB at 732 GB/s, 250 W. Assumed: "
            "24 cores, PCIe 3, 30 W idle, 60% of the peak, 5 us for an operation."
        ),
    )


def pearl_workstation() -> Machine:
    card = Device(
        kind="gpu", name="a workstation's GPU, 24 GB", memory=24 * GB, peak=27.8 * TERA, bandwidth=768 * GB,
        watts=230.0, idle_watts=20.0, latency=5e-6, launch=10e-6, efficiency=0.5,
    )  # fmt: skip
    board = Device(
        kind="fpga", name="an FPGA board", memory=16 * GB, peak=1 * TERA, bandwidth=77 * GB, watts=30.0,
        idle_watts=15.0, launch=30e-6,
    )  # fmt: skip
    return Machine(
        name="pearl-workstation",
        cores=32,
        memory=128e9,
        devices=(card, processor("core of the host", 128e9), board),
        connections={"host": Connection(10e-6, 16 * GB), "devices": Connection(20e-6, 8 * GB)},
        idle_watts=80.0,
        source=(
            "Of the kind that PEARL (Meng et al., CF 2024) ran on: a server's CPU, one GPU of the RTX A5000's size "
            "(27.8 TFLOP/s in float32, 24 GB at 768 GB/s, 230 W by NVIDIA's data sheet), one FPGA board over PCIe. "
            "Assumed: everything about the board and the host."
        ),
    )


CATALOGUE: dict[str, Callable[[], Machine]] = {
    "tpu-v3-host": lambda: tpu_v3(1, "tpu-v3-host"),
    "tpu-v3-pod": lambda: tpu_v3(256, "tpu-v3-pod"),
    "tpu-v4-host": lambda: tpu_v4(1, "tpu-v4-host"),
    "tpu-v4-pod": lambda: tpu_v4(1024, "tpu-v4-pod"),
    "a100-node": a100_node,
    "p100-cluster": p100_cluster,
    "pearl-workstation": pearl_workstation,
}


def find(name: str) -> Machine:
    """The machine of that name."""
    if name not in CATALOGUE:
        raise UnknownName("machine", name, CATALOGUE)
    return CATALOGUE[name]()
