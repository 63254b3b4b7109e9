"""Who watches a run over hosts sees, keeps and ends what it would in one process."""

from __future__ import annotations

import motet
from motet.envs.gymnasium import Gymnasium
from tests.engine.here import Here
from tests.envs.test_bounds import TINY, WORST, Beyond


def test_observations_out_of_bounds_are_counted_on_every_host() -> None:
    plan = motet.coarse(2)
    alone = motet.train(TINY, Gymnasium(Beyond), plan, total_timesteps=100, progress=False)
    spread = motet.train(TINY, Gymnasium(Beyond), plan, total_timesteps=100, progress=False, cluster=Here())
    assert alone.outside.count == spread.outside.count == 4 * 5 * 2
    assert spread.outside.worst == WORST
