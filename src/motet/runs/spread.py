"""Several runs of one configuration as one curve: the interquartile mean, and a band that says how sure it is.

Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SAMPLES = 2000


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean of what is left without the lowest and the highest quarter, of which each is rounded down."""
    ordered = np.sort(values, axis)
    count = ordered.shape[axis]
    cut = count // 4
    return np.take(ordered, range(cut, count - cut), axis).mean(axis)


def bootstrap(
    strata: Sequence[np.ndarray], confidence: float = 0.95, samples: int = SAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The band of the interquartile mean of [runs, points] -> (low [points], high [points]).

    Runs are drawn anew from their own stratum (a task, say), as many as it has; the mean is over all of them together.
    """
    chance = np.random.default_rng(seed)
    means = np.empty((samples, strata[0].shape[1]))
    for sample in range(samples):
        drawn = [runs[chance.integers(len(runs), size=len(runs))] for runs in strata]
        means[sample] = iqm(np.concatenate(drawn))
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(means, [tail, 100 - tail], 0)
    return low, high
