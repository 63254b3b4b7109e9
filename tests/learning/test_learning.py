"""Every algorithm learns what the benchmarks claim, with every seed that they name."""

import pytest

from benchmarks.learning import CLAIMS, Claim, learn

RUNS = [pytest.param(claim, seed, id=f"{claim.name}-{seed}") for claim in CLAIMS for seed in claim.seeds]


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "seed"), RUNS)
def test_policy_reaches_its_claimed_return(claim: Claim, seed: int) -> None:
    assert claim.meets(learn(claim, seed))
