"""A model card: what was trained and how, how good it is, and how to use it, for whoever finds the policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jax

from motet.runs.policy import Policy

USE = {
    "safetensors": """\
```python
import motet

policy = motet.load("{folder}")
action = policy(observation)  # several observations in one array give several actions
```
""",
    "stablehlo": """\
```python
from pathlib import Path
from jax import export

policy = export.deserialize(bytearray(Path("{folder}/greedy.stablehlo").read_bytes()))
action = policy.call({{"observation": observations{memory}}})["action"]  # a row for each environment
```

JAX alone runs it, neither motet nor the algorithm. `explore.stablehlo` draws its actions: it takes `key` too, two
numbers of type uint32 for each row. `program.json` tells all inputs and outputs{first}.
""",
    "onnx": """\
```python
import onnxruntime

policy = onnxruntime.InferenceSession("{folder}/greedy.onnx")
action = policy.run(["action"], {{"observation": observations{memory}}})  # a row for each environment
```

`program.json` tells all inputs and outputs{first}.
""",
}


def card(policy: Policy, form: str, folder: str, facts: Mapping[str, str]) -> str:
    """The card of a policy that was written to `folder` in that form. `facts` is what else is known of its run."""
    algorithm, spec = policy.algorithm, policy.algorithm.spec
    remembers = bool(jax.tree.leaves(algorithm.memory()))
    told = {
        "observations": str(spec.observation_space),
        "actions": str(spec.action_space),
        **facts,
    }
    title = f"{type(algorithm).__name__}{' on ' + facts['environment'] if 'environment' in facts else ''}"
    memory = {"stablehlo": ', "memory": memory', "onnx": ', "memory.0": memory'}.get(form, "") if remembers else ""
    use = USE[form].format(
        folder=folder, memory=memory, first=", and what a policy remembers at first" if remembers else ""
    )
    rows = "\n".join(f"| {name} | {_cell(value)} |" for name, value in told.items())
    return f"# {title}\n\nA policy trained with motet.\n\n| | |\n| --- | --- |\n{rows}\n\n## Use\n\n{use}"


def facts_of(config: Mapping[str, Any], plan: Any, score: str | None) -> dict[str, str]:
    """What a run's configuration says, in words."""
    found: dict[str, str] = {}
    if isinstance(config.get("environment"), str):
        found["environment"] = config["environment"]
        if config.get("environment_options"):
            found["environment's options"] = json.dumps(config["environment_options"])
    if isinstance(config.get("steps"), int):
        found["steps"] = f"{config['steps']:,}"
    if isinstance(config.get("seed"), int):
        found["seed"] = str(config["seed"])
    if plan:
        found["plan"] = str(plan)
    if score:
        found["evaluation"] = score
    if isinstance(config.get("options"), dict):
        found["options"] = json.dumps(config["options"])
    if isinstance(config.get("versions"), dict):
        found["versions"] = ", ".join(f"{name} {version}" for name, version in config["versions"].items())
    return found


def _cell(text: str) -> str:
    """In a table of Markdown; what comes from a file must not end the cell, nor begin anything else."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
