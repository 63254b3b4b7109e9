"""`python -m benchmarks [NAME ...]`: measure the claims, all of them or those named. Ends with 1 if any is short."""

from __future__ import annotations

import sys

from benchmarks import claims, cluster_claims, planner, replay_claims, upkeep
from benchmarks.claims import Claim, save, show

CLAIMS = (*claims.CLAIMS, *replay_claims.CLAIMS, *upkeep.CLAIMS, *cluster_claims.CLAIMS, *planner.CLAIMS)


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
    known = {claim.name: claim for claim in CLAIMS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no claim is called {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    short = [name for name in names or known if not run(known[name])]
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
