"""`python -m benchmarks [NAME ...]`: measure the claims, all of them or those named. Ends with 1 if any is short.

A name may be a pattern: `'planner_*'` is all of the planner's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

from benchmarks import claims, cluster_claims, opencl_driver, planner_claims, replay_claims, upkeep
from benchmarks.claims import Claim, save, show

CLAIMS = (*claims.CLAIMS, *replay_claims.CLAIMS, *upkeep.CLAIMS, *cluster_claims.CLAIMS, *planner_claims.CLAIMS)


def run(claim: Claim) -> bool:
    """Measure one claim and say how it went -> whether it holds."""
    print(f"\n{claim.name}")
    for name, value in claim.settings.items():
        print(f"  {name}: {value}")
    sys.stdout.flush()
    measurement = claim.measure(claim.settings)
    save(claim, measurement)
    medians = ", ".join(f"{name} {show(value)}" for name, value in measurement.medians.items())
    print(f"  medians: {medians} {measurement.unit}")
    print(claim.line(measurement.value), flush=True)
    return claim.holds(measurement.value)


def main(names: list[str]) -> int:
    opencl_driver.use_what_works()
    known = {claim.name: claim for claim in CLAIMS}
    unknown = [name for name in names if not named([name])]
    if unknown:
        print(f"no claim is called {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    groups = apart(named(names or ["*"]))
    if len(groups) == 1:
        held = [run(known[name]) for name in groups[0]]  # all of them, whether or not one is short
        return 0 if all(held) else 1
    codes = [subprocess.run([sys.executable, "-m", "benchmarks", *group], check=False).returncode for group in groups]
    return 1 if any(codes) else 0


def named(patterns: Sequence[str]) -> list[str]:
    """The claims that are called so, each once."""
    return list(dict.fromkeys(claim.name for each in patterns for claim in CLAIMS if fnmatchcase(claim.name, each)))


def apart(names: list[str]) -> list[list[str]]:
    """Claims that share what they measured, in one process; every other one has its own.

    What a claim did to its process, devices of JAX above all, is then no matter of the next one.
    """
    shared = [claim.name for claim in planner_claims.OF_THE_GRID]
    together = [name for name in names if name in shared]
    return [[name] for name in names if name not in shared] + ([together] if together else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
