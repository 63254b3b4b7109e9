"""`export`: a policy -> files that others can use, with a card that says what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from motet.errors import BadOption, UnknownName
from motet.runs.card import card
from motet.runs.policy import Policy, write_whole


def export(
    policy: Policy, folder: str | Path, to: str = "safetensors", *, facts: Mapping[str, str] | None = None
) -> list[Path]:
    """Write `policy` into `folder` -> the files.

    "safetensors" is what `motet.load` reads; "stablehlo" a program that JAX runs without motet; "onnx" one for other
    runtimes. A README.md says what the policy is; `facts` are what else it should say.
    """
    if not isinstance(policy, Policy):
        raise BadOption(f"policy must be a motet.Policy, such as the policy of a result, got {policy!r}.")
    if to not in FORMATS:
        raise UnknownName("format", to, FORMATS)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        names = FORMATS[to](policy, place)
        write_whole(place / "README.md", card(policy, to, place.name, facts or {}).encode())
    except OSError as error:
        raise BadOption(f"{place} cannot be written: {error.strerror}.") from None
    return [place / name for name in (*names, "README.md")]


def _safetensors(policy: Policy, folder: Path) -> list[str]:
    policy.save(folder)
    return ["policy.safetensors", "policy.json"]


def _stablehlo(policy: Policy, folder: Path) -> list[str]:
    from motet.runs.program import write_stablehlo

    return write_stablehlo(policy, folder)


def _onnx(policy: Policy, folder: Path) -> list[str]:
    from motet.runs.program import write_onnx

    return write_onnx(policy, folder)


FORMATS: dict[str, Callable[[Policy, Path], list[str]]] = {
    "safetensors": _safetensors,
    "stablehlo": _stablehlo,
    "onnx": _onnx,
}
