"""`motet algorithms` and `motet envs`: what there is."""

from __future__ import annotations


def list_algorithms(args: list[str]) -> int:
    from motet import algorithms
    from motet.cli.report import listing, short_kinds

    kinds = {name: algorithms.find(name) for name in algorithms.ALGORITHMS}
    rows = [
        (
            name,
            short_kinds(kind.action_spaces),
            "any" if kind.max_lag is None else kind.max_lag,
        )
        for name, kind in kinds.items()
    ]
    header = ("algorithm", "actions", "largest lag")
    print(listing(header, rows, "<<>", [kind.__doc__ or "" for kind in kinds.values()]))
    return 0


def list_envs(args: list[str]) -> int:
    from motet.cli.report import listing, short_space
    from motet.envs import describe

    found = describe()
    rows = [
        (each.id, short_space(each.observation_space), short_space(each.action_space), each.time_limit or "none")
        for each in found
    ]
    header = ("environment", "observations", "actions", "time limit")
    print(listing(header, rows, "<<<>", [each.summary for each in found]))
    print(f"\n{_families()}")
    return 0


def _families() -> str:
    """The prefixes of other libraries, and what to do where one is missing."""
    from motet.cli.report import listing
    from motet.envs.families import FAMILIES

    rows = [
        (f"{each.prefix}/ID", each.example, "yes" if each.installed else each.install) for each in FAMILIES.values()
    ]
    notes = [each.summary for each in FAMILIES.values()]
    return listing(("other libraries", "for example", "installed"), rows, "<<<", notes)
