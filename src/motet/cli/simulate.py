"""`motet simulate`: plans on more and more devices of a machine that is described."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from motet.cli.arguments import busy, parse_task

if TYPE_CHECKING:
    from motet.plan.cost import Profile

ABOUT = (
    "Draw how fast the plans of all presets would be on more and more devices of a machine. Nothing of it is here: all "
    "speeds are modelled, from what the loop computes and what the machine is said to do."
)


def simulate(args: list[str]) -> int:
    """A table and a picture of how plans scale."""
    from motet.cli.options import SimulateOptions, Task

    options = parse_task("simulate", ABOUT, args, task=Task, show=SimulateOptions)
    from motet.cli.choosing import read_machine
    from motet.flow.describe import table
    from motet.scaling import counts_of, draw, sweep

    show, env = options.show, options.task.make()
    counts, machine = counts_of(show.sweep), read_machine(show.machine)
    assert machine is not None
    with busy("simulating"):
        measured = _environments(options.algorithm, env) if show.profile else None
        points = sweep(options.algorithm, env, machine, counts, lag=show.lag, measured=measured)
    rows = [
        (
            point.name,
            point.devices,
            f"{point.estimate.steps_per_second:,.0f}",
            f"{point.estimate.steps_per_second / point.devices:,.0f}",
            point.estimate.bottleneck,
            f"{point.estimate.watts:,.0f}",
        )
        for point in sorted(points, key=lambda point: (point.name, point.devices))
    ]
    header = ("plan", "devices", "steps/s", "of each device", "bottleneck", "watts")
    print("\n".join(table(header, rows, "<>>><>")))
    print(f"(speeds and watts are modelled; {machine.source})")
    title = f"{options.algorithm.__class__.__name__} on {env.name}, {machine.name}"
    print(f"picture     {draw(points, title, show.output)}")
    return 0


def _environments(algorithm: Any, env: Any) -> Profile | None:
    """Steps of host environments, timed here; None for those that are compiled."""
    from motet.engine.pools import Pools
    from motet.flow.trace import trace
    from motet.plan.cost import Profile

    graph = trace(algorithm, env, iterations=10)
    with Pools(graph, ()) as pools:
        fits = pools.fits()
    return Profile(environments=fits) if fits else None
