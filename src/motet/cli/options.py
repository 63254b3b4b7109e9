"""What can be said on the command line, besides an algorithm's own fields and a plan: a dataclass for each command.

Options are dataclass fields, read by tyro; the docstring under a field is its help.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from motet.cli.plan_options import flags
from motet.envs.wrapping import WRAPPERS
from motet.errors import BadOption


@dataclass(frozen=True, kw_only=True)
class Task:
    env: Annotated[str, Positional, arg(metavar="ENV")]
    """The environment: `motet envs` lists them all. module:Name and file.py:Name are your own."""
    env_kwargs: Annotated[str | None, arg(metavar="JSON", help_behavior_hint="")] = None
    """Options with which to make it, as '{"gravity": 9.8}'."""

    time_limit: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Cut episodes off after so many of its steps."""
    action_repeat: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Let each action last so many steps, and sum their rewards."""
    frame_stack: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Show the last so many observations as one."""

    def make(self, strict: bool = False) -> Any:
        from motet import envs

        wrappers = {name: getattr(self, name) for name in WRAPPERS}
        return envs.make(self.env, check_bounds=strict, **wrappers, **self.options())

    def options(self) -> dict[str, Any]:
        try:
            options = json.loads(self.env_kwargs or "{}")
        except (ValueError, RecursionError) as error:
            raise BadOption(f"--env-kwargs must be a JSON object such as '{{\"gravity\": 9.8}}': {error}") from None
        if not isinstance(options, dict) or {"check_bounds", *WRAPPERS} & set(options):
            raise BadOption(f"--env-kwargs must be a JSON object such as '{{\"gravity\": 9.8}}', got {self.env_kwargs}")
        return options


@dataclass(frozen=True, kw_only=True)
class Length:
    total_timesteps: int = 500_000
    """Environment steps in all, as 500_000 or 5e5; rounded down to whole iterations."""


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """How often a run is saved."""

    checkpoint_seconds: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Save the run every so many seconds; by default 30, or less often where saving would take over 3% of the time."""
    checkpoint_steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Save it every so many environment steps instead."""
    keep: int = 3
    """How many of the last checkpoints remain, besides the best one; 0: none is made."""

    def checkpoints(self) -> dict[str, Any]:
        return {
            "checkpoint_seconds": self.checkpoint_seconds,
            "checkpoint_steps": self.checkpoint_steps,
            "keep": self.keep,
        }


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """On which hosts to run."""

    hosts: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Spread the plan over so many hosts, each a process that Ray starts (pip install 'motet[ray]')."""
    address: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Where a Ray cluster runs, as 10.0.0.1:6379 or auto; by default Ray is started on this machine."""
    working_dir: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Send this folder to every host, with code of yours that is not installed there."""

    def cluster(self) -> Any:
        """The cluster that they describe; None, if they describe none."""
        if self.hosts is None:
            given = [name for name in ("address", "working_dir") if getattr(self, name) is not None]
            if given:
                raise BadOption(f"{flags(given)}: for a run over hosts only; say how many with --hosts")
            return None
        from motet.engine.hosts.cluster import Cluster

        return Cluster(self.hosts, self.address, working_dir=self.working_dir)


@dataclass(frozen=True, kw_only=True)
class RunOptions(ClusterOptions, CheckpointOptions, Length):
    """How long to train, and where to put what comes of it."""

    seed: int = 0
    """Where all random numbers come from."""
    devices: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Make the CPU appear as so many devices."""
    run_dir: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """The run's folder; by default a new one below runs/."""
    config: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Repeat what the config.json of a run holds: a file, or a run. ALGORITHM and ENV may then be left out; what is
    said besides wins."""
    trust: Annotated[bool, FlagCreatePairsOff] = False
    """Import the modules that --config names, although somebody else wrote it: that runs their code."""
    serial: Annotated[bool, FlagCreatePairsOff] = False
    """Run all fragments in one thread, for debuggers."""
    timeout: float = 600.0
    """Seconds that one part may wait for another before the run is stopped."""
    step_timeout: float = 60.0
    """Seconds that a step of host environments, or the start of a worker, may take."""
    restarts: int = 3
    """How often dead workers of host environments are started anew."""
    evaluate_episodes: int = 64
    """Episodes to play without exploration when training is over; 0: none."""
    eval_steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Evaluate every so many environment steps of the training too, beside it, and keep the best policy in best/."""
    eval_seconds: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="")] = None
    """The same every so many seconds."""
    eval_episodes: int = 16
    """Episodes of each of these evaluations."""
    eval_explore: Annotated[bool, FlagCreatePairsOff] = False
    """Let them act as in training, instead of greedily."""
    stop_when: Annotated[str | None, arg(metavar="CONDITION", help_behavior_hint="")] = None
    """End the run early: a column of its metrics, a comparison and a number, as 'eval/return >= 475'."""
    track: Annotated[Literal["wandb", "trackio", "none"] | None, arg(metavar="TRACKER", help_behavior_hint="")] = None
    """Tell a tracker of the run too: wandb or trackio, if it is installed."""
    strict: Annotated[bool, FlagCreatePairsOff] = False
    """Make it an error if a host environment's observation leaves the bounds that its space declares."""
    profile: bool = True
    """Where no plan is named, let the planner measure for some seconds, once, and choose one; else a rule does."""
    max_lag: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """The largest lag that the planner may use; by default 1 for algorithms that learn from any lag, 0 for others."""


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(ClusterOptions, CheckpointOptions):
    """How to go on."""

    run_dir: Annotated[Path, Positional, arg(metavar="RUN_DIR")]
    """The folder of a run that was stopped, or `latest`."""
    total_timesteps: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Environment steps in all, those before included; may be more than before. Schedules are stretched with it."""
    iteration: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Go on from the checkpoint after so many iterations, by default the newest. Later ones are removed."""
    devices: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Make the CPU appear as so many devices; by default as many as the run had."""
    serial: Annotated[bool, FlagCreatePairsOff] = False
    """Run all fragments in one thread, for debuggers."""
    timeout: float = 600.0
    """Seconds that one part may wait for another before the run is stopped."""
    step_timeout: float = 60.0
    """Seconds that a step of host environments, or the start of a worker, may take."""
    restarts: int = 3
    """How often dead workers of host environments are started anew."""
    evaluate_episodes: int = 64
    """Episodes to play without exploration when training is over; 0: none."""
    track: Annotated[Literal["wandb", "trackio", "none"] | None, arg(metavar="TRACKER", help_behavior_hint="")] = None
    """Tell this tracker of it, or none; by default the one that was told before, in the same curves."""
    trust: Annotated[bool, FlagCreatePairsOff] = False
    """Import the modules that the run names, although somebody else wrote it: that runs their code."""


@dataclass(frozen=True, kw_only=True)
class GraphOptions(Length):
    """How to show the graph."""

    format: Literal["text", "dot", "svg", "json"] = "text"
    """A table for terminals, Graphviz DOT, a picture, or everything for other programs."""
    output: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write there instead of to the screen."""


@dataclass(frozen=True, kw_only=True)
class PlannerOptions:
    """What the planner may do, where no plan is named."""

    machine: Annotated[str | None, arg(metavar="FILE|NAME", help_behavior_hint="")] = None
    """For another machine than this one: a description in YAML, or one of the catalogue, as tpu-v3-pod."""
    objective: str = "throughput"
    """What it is to be good at: throughput, throughput-per-watt or time-per-update; 'throughput >= 50_000' says what
    must be reached."""
    max_lag: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """The largest lag that it may use; by default 1 for algorithms that learn from any lag, 0 for others."""
    profile: bool = True
    """Measure on this machine what candidates compute; else all of it is modelled."""
    again: Annotated[bool, FlagCreatePairsOff] = False
    """Measure again what was measured before."""


@dataclass(frozen=True, kw_only=True)
class ShowPlanOptions(PlannerOptions, Length):
    """How to show the plan."""

    explain: Annotated[bool, FlagCreatePairsOff] = False
    """Say what each part of the chosen plan does and waits for, what was measured, and why others do not fit."""
    save: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write the chosen plan there, as a file that --plan reads."""

    json: Annotated[bool, FlagCreatePairsOff] = False
    """The plan as a file that --plan reads."""
    hosts: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Over how many hosts it lies, all as this one (or as --machine says); by default as many as it says itself."""
    output: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write there instead of to the screen."""


@dataclass(frozen=True, kw_only=True)
class OneRun:
    run_dir: Annotated[Path, Positional, arg(metavar="RUN")]
    """The folder that `motet train` wrote, its name below runs/, or `latest`."""
    checkpoint: Literal["latest", "best"] = "latest"
    """The policy at the run's end, or the one that was best in its evaluations."""
    trust: Annotated[bool, FlagCreatePairsOff] = False
    """Import the modules that the run names, although somebody else wrote it: that runs their code."""


@dataclass(frozen=True, kw_only=True)
class RecordOptions(OneRun):
    episodes: int = 1
    """How many episodes to film, one after the other."""
    seed: int = 0
    """Where they start from."""
    max_steps: int = 1000
    """Cut each off after so many steps."""
    fps: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Pictures a second; by default as many as the environment says."""
    output: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """An .mp4 or a .gif; by default one below videos/ in the run's folder."""
    step_timeout: float = 60.0
    """Seconds that a step of host environments may take."""


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN_DIR [RUN_DIR ...]")]
    """The folders that `motet train` wrote."""
    metric: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]", help_behavior_hint="")] = ()
    """What to draw, one below the other: any column of metrics.jsonl or evaluations.jsonl; by default return, and
    eval/return where runs were evaluated while they trained."""
    over: tuple[Literal["steps", "seconds"], ...] = ("steps", "seconds")
    """What it is drawn over, side by side."""
    output: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """A .png, .svg or .pdf; by default in plots/ of the run's folder, or of several runs plot.png here."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions(OneRun):
    output: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """By default report.html in the run's folder."""
    episodes: int = 16
    """Episodes to play for its numbers; 0: none, nor is a film made."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions(OneRun):
    to: Literal["safetensors", "stablehlo", "onnx"] = "safetensors"
    """What motet.load reads; a program that JAX runs without motet; or one for other runtimes."""
    output: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """By default one below export/ in the run's folder."""
    evaluate_episodes: int = 64
    """Episodes to play for the card's numbers; 0: none."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(OneRun):
    episodes: int = 64
    """How many episodes to play."""
    seed: int = 0
    """Where they start from."""
    workers: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Processes for host environments, by default one for each core; 0: a thread of this one."""
    step_timeout: float = 60.0
    """Seconds that a step of host environments, or the start of a worker, may take."""
    restarts: int = 3
    """How often dead workers of host environments are started anew."""
    strict: Annotated[bool, FlagCreatePairsOff] = False
    """Make it an error if a host environment's observation leaves the bounds that its space declares."""


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """On what to try it."""

    machine: Annotated[str, arg(metavar="FILE|NAME")] = "tpu-v3-pod"
    """A description in YAML, or a machine of the catalogue. The algorithm's --num-envs are those of one device, and
    so are its replay and batches."""
    sweep: Annotated[str, arg(metavar="devices=FROM..TO")] = "devices=16..2048"
    """How many of its usual devices, doubling."""
    lag: int = 1
    """The lag of plans that overlap acting and learning, where the algorithm can learn from it."""
    output: Annotated[Path, arg(metavar="FILE")] = Path("scaling.png")
    """Where the picture goes."""
    profile: bool = True
    """Time host environments here; else they are taken to need 20 us for a step."""


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    run_dir: Annotated[Path, Positional, arg(metavar="RUN")]
    """The folder of a run whose plan the planner chose, its name below runs/, or `latest`."""


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    folder: Annotated[Path, Positional, arg(metavar="FOLDER")] = Path("runs")
    """Where the runs lie."""


@dataclass(frozen=True, kw_only=True)
class CheckEnvOptions:
    steps: int = 1000
    """Random steps that each of four environments takes."""
    seed: int = 0
    """Where their random numbers come from."""
    strict: Annotated[bool, FlagCreatePairsOff] = False
    """Count it as a fault if an observation leaves the bounds that its space declares."""


@dataclass(frozen=True, kw_only=True)
class CheckAlgorithmOptions:
    iterations: int = 4
    """Training iterations in each run."""
    seed: int = 0
    """Where their random numbers come from."""
