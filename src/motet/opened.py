"""A run's folder, opened again: the algorithm, the environment and the plan that its configuration names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.errors import BadOption, MotetError, UnknownName
from motet.runs import options, trust
from motet.runs.finding import BEST, CONFIG, read_config_file, resolve_run
from motet.runs.names import Names
from motet.runs.reading import Damaged

if TYPE_CHECKING:
    from motet.flow.algorithm import Algorithm
    from motet.plan.plan import Plan
    from motet.runs.policy import Policy

CHECKPOINTS = ("latest", BEST)


@dataclass(frozen=True)
class Opened:
    """What a folder says of its run. Nothing is imported before it is asked for."""

    path: Path
    config: Mapping[str, Any]
    names: Names
    file: Path
    """Where all this was read."""

    def algorithm(self, but: Collection[str] = ()) -> Algorithm:
        """The algorithm with its options, `but` for some."""
        from motet import algorithms

        kind = algorithms.find(self.names.algorithm)
        try:
            given = {name: value for name, value in self.config.get("options", {}).items() if name not in but}
            return kind(**options.read(given, kind, learns=True))
        except RecursionError:
            raise self._damaged("its options are nested too deeply") from None
        except Damaged as error:
            raise self._damaged(str(error)) from None
        except MotetError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._damaged(f"its options fit no {kind.__name__} ({error})") from None

    def environment(self, strict: bool = False) -> Any:
        """The environment, by its id or by the name that it has for itself, with its wrappers."""
        from motet.envs import registry

        return registry.make(self.environment_id, check_bounds=strict, **self.names.environment_options)

    @property
    def environment_id(self) -> str:
        from motet.envs import registry

        ids = {place.partition(":")[2]: env_id for env_id, place in registry.ENVIRONMENTS.items()}
        return ids.get(self.names.environment, self.names.environment)

    def policy(self, checkpoint: str = "latest", *, trusted: bool = False) -> Policy:
        """The policy at the run's end, or its best."""
        from motet import algorithms
        from motet.runs.policy import Policy

        if checkpoint not in CHECKPOINTS:
            raise UnknownName("checkpoint", checkpoint, CHECKPOINTS)
        folder = self.path / BEST if checkpoint == BEST else self.path
        if not (folder / "policy.json").is_file():
            why = "the run kept no best one" if checkpoint == BEST else "it has one once its training is over"
            raise BadOption(f"{folder} holds no policy: {why}.")
        return Policy.load(folder, algorithms.find(self.names.algorithm), trust=trusted)

    def plan(self) -> Plan:
        from motet.plan.plan import Plan

        file = self.path / "plan.json"
        if not file.is_file():
            raise Damaged(f"{self.path} is damaged: it holds no plan.json.")
        return Plan.from_json(file.read_text())

    def number(self, name: str) -> int:
        """A whole number of the configuration."""
        value = self.config.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._damaged(f"{name} should be a whole number, but is {value!r}")
        return value

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"{self.file} is damaged: {what}.")


def open_run(path: str | Path, doing: str, *, trusted: bool = False, learns: bool = False) -> Opened:
    """Read a run's folder (`latest`: that of the last run), for `doing` something with it. Names of modules are only
    believed if this user wrote or trusts them."""
    return open_config(resolve_run(path) / CONFIG, doing, trusted=trusted, learns=learns)


def open_config(file: Path, doing: str, *, trusted: bool = False, learns: bool = False) -> Opened:
    """The same of a file of that form, wherever it lies. Whoever `learns` needs some more names than who acts."""
    path, config = file.parent, read_config_file(file)
    algorithm, environment = config.get("algorithm"), config.get("environment")
    given = config.get("environment_options", {})
    if not isinstance(algorithm, str) or not isinstance(environment, str) or not isinstance(given, dict):
        raise BadOption(f"{file} is damaged: it names no algorithm and environment.")
    told = config.get("options", {})
    names = Names(algorithm, environment, given, tuple(options.code_names(told)), tuple(options.learning_names(told)))
    needed = (*names.all, *names.learning) if learns else names.all
    trust.demand(f"{doing} {path}", needed, asdict(names), config.get("signature"), trusted)
    return Opened(path, config, names, file)
