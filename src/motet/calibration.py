"""A profile corrected by what a run measured: what took twice as long as foretold is taken to do so from now on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from motet.engine import profiles
from motet.errors import BadOption
from motet.foretold import FILE, Comparison, Term
from motet.plan.cost import Fit, Profile

MOST = 10.0
"""A correction beyond this is no correction: something else happened."""


def calibrate(run: Path) -> str:
    """Correct the profile of a run -> what was changed, for people."""
    try:
        found = Comparison.from_json((run / FILE).read_text())
    except FileNotFoundError:
        raise BadOption(
            f"{run} has no {FILE}: only a run whose plan the planner chose says what was foretold."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise BadOption(f"{run / FILE} is damaged.") from None
    profile = profiles.load(found.profile) if found.profile else None
    if profile is None:
        raise BadOption(f"The profile that {run} was planned with is no longer there: the next choice measures anew.")
    changed, corrected = corrections(found, profile)
    if not changed:
        return "Nothing to correct: what was foretold came."
    profiles.save(found.profile, replace(corrected, about={**profile.about, "calibrated": str(run)}))
    return "\n".join(f"{term.part}: {term.what} takes {ratio:.2f} of what it was taken for" for term, ratio in changed)


def corrections(found: Comparison, profile: Profile) -> tuple[list[tuple[Term, float]], Profile]:
    """What is off by more than a hundredth, and the profile in which it no longer is."""
    tables = {name: dict(getattr(profile, name)) for name in ("calls", "environments", "rested", "messages")}
    changed = []
    for term in found.terms:
        name, _, key = term.key.partition(" ")
        fits = tables.get(name, {})
        ratio = term.measured / term.predicted if term.predicted > 0 else 1.0
        meant = [each for each in fits if each == key or (name == "messages" and _is_of(each, key))]
        if meant and abs(ratio - 1) > 0.01 and 1 / MOST < ratio < MOST:
            fits.update({each: _scaled(fits[each], ratio) for each in meant})
            changed.append((term, ratio))
    return changed, replace(profile, **tables)


def _is_of(key: str, link: str) -> bool:
    """Whether a key is that of messages of "send LINK" or "receive LINK", to or from however many."""
    return key.split(" ")[1:3] == link.split(" ")


def _scaled(fit: Fit, ratio: float) -> Fit:
    return replace(fit, points=tuple((size, seconds * ratio) for size, seconds in fit.points))
