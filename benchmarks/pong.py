"""`python -m benchmarks.pong [STEPS]`: the first part of a learning curve on Pong, from pictures.

It is to show that the image pipeline learns: EnvPool's Pong with 42 x 42 pictures instead of 84 x 84, which cost a CPU
less, one actor thread and PPO with pictures normalised pixel by pixel. Nothing is claimed but that the curve rises.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.learning import RESULTS

STEPS = 600_000
PICTURES = (("img_height", 42), ("img_width", 42))
OPTIONS: dict[str, Any] = {
    "num_envs": 8, "num_steps": 128, "update_epochs": 4, "num_minibatches": 4, "learning_rate": 5e-4, "anneal": False,
    "entropy_weight": 0.01, "value_weight": 0.5, "normalize_observation": True,
}  # fmt: skip
SEED = 1
BIN = 50_000


def curve(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """The mean return of the episodes that ended in each stretch of the run."""
    bins: dict[int, list[tuple[float, int]]] = {}
    for row in history:
        if row.get("episodes"):
            bins.setdefault(int(row["steps"] - 1) // BIN, []).append((row["return"], row["episodes"]))
    return [
        {
            "until": (place + 1) * BIN,
            "episodes": sum(count for _, count in rows),
            "return": sum(value * count for value, count in rows) / sum(count for _, count in rows),
        }
        for place, rows in sorted(bins.items())
    ]


def main(steps: int, folder: Path = RESULTS) -> None:
    import motet
    from motet.envs.envpool import EnvPool

    start = time.monotonic()
    env = EnvPool("Pong-v5", options=PICTURES)
    result = motet.train(
        motet.PPO(**OPTIONS), env, plan=motet.sebulba(threads=1), total_timesteps=steps, seed=SEED, run_dir="runs/pong",
        step_timeout=10_000, timeout=10_000,
    )  # fmt: skip
    rows = curve(result.history)
    for row in rows:
        print(f"until {row['until']:>9,}: {row['return']:7.2f} over {row['episodes']:.0f} episodes")
    rises = rows[-1]["return"] > rows[0]["return"]
    print(f"pong: from {rows[0]['return']:.2f} to {rows[-1]['return']:.2f}, {'rising' if rises else 'not rising'}")
    found = {"options": OPTIONS, "seed": SEED, "steps": result.steps, "pictures": dict(PICTURES), "curve": rows}
    found["seconds"] = round(time.monotonic() - start)
    (folder / "pong.json").write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(0 if rises else 1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
