"""`motet graph` and `motet plan`: what a loop is, and what becomes of it under a plan. Nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from motet.cli.arguments import parse_task, traced, write

if TYPE_CHECKING:
    from motet.flow.graph import Graph


def graph(args: list[str]) -> int:
    """Show an algorithm's loop."""
    from motet.cli.options import GraphOptions, Task

    options = parse_task("graph", "Show an algorithm's loop as a graph.", args, task=Task, show=GraphOptions)
    from motet.flow import graph_text as show

    forms: dict[str, Callable[[Graph], str]] = {
        "text": show.text, "dot": show.dot, "svg": show.svg, "json": show.to_json
    }  # fmt: skip
    loop = traced(options.algorithm, options.task, options.show.total_timesteps)
    write(forms[options.show.format](loop), options.show.output)
    return 0


def plan(args: list[str]) -> int:
    """Show a plan."""
    from motet.cli.options import ShowPlanOptions, Task
    from motet.cli.plan_options import chosen_plan, plan_options

    about = (
        "Show a plan: its fragments, their programs, and the traffic on its links. Without a plan, choose one: what "
        "candidates compute is measured here once, or modelled for another machine, and the best are shown."
    )
    options = parse_task("plan", about, args, task=Task, plan=plan_options(), show=ShowPlanOptions)
    from motet.plan import plan_text as show
    from motet.plan.check import check
    from motet.plan.hosts import over

    chosen = chosen_plan(options.plan)
    if chosen is None:
        from motet.cli.choosing import show_choice

        return show_choice(options.algorithm, options.task, options.show)
    chosen = over(chosen, options.show.hosts)
    loop = traced(options.algorithm, options.task, options.show.total_timesteps, chosen)
    check(loop, chosen)
    write(chosen.to_json() if options.show.json else show.text(loop, chosen), options.show.output)
    return 0
