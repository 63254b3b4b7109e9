"""`load`: a folder -> the policy that is in it."""

from __future__ import annotations

from pathlib import Path

from motet import algorithms
from motet.errors import BadOption, UnknownName
from motet.flow.algorithm import Algorithm
from motet.runs import trust as trusting
from motet.runs.policy import Policy, signed_part
from motet.runs.reading import Damaged, read_json


def load(folder: str | Path, algorithm: type[Algorithm] | Algorithm | None = None, *, trust: bool = False) -> Policy:
    """The policy in a run's folder, in its `best` or in one that `motet export` wrote.

    Algorithms of motet's are found by their names. One of your own is found too if it can be imported and you trained
    it; otherwise give its class, or an algorithm where its networks have no name. `trust` says that what somebody
    else's folder names may be imported, which runs their code.
    """
    place = Path(folder)
    if not place.is_dir():
        raise BadOption(f"There is no folder {place}; give a run's folder, as `motet train` makes them.")
    return Policy.load(place, _algorithm(place, trust) if algorithm is None else algorithm, trust=trust)


def _algorithm(folder: Path, trusted: bool) -> type[Algorithm]:
    """The class that a saved policy names."""
    file = folder / "policy.json"
    if not file.is_file():
        raise BadOption(f"{folder} holds no policy.json; a run's folder has one once its training is over.")
    told = read_json(file)
    name = told.get("algorithm") if isinstance(told, dict) else None
    if not isinstance(name, str):
        raise Damaged(f"{file} is damaged: it names no algorithm.")
    trusting.demand(f"load the policy in {folder}", [name], signed_part(told), told.get("signature"), trusted)
    try:
        return algorithms.find(name)
    except (UnknownName, BadOption) as error:
        raise BadOption(
            f"The policy in {folder} was trained by {name!r}, which cannot be found: {error} Give its class: "
            "motet.load(folder, algorithm=MyAlgorithm)."
        ) from None
