"""The command line: what it prints, what it refuses, and the code it ends with."""

from __future__ import annotations

import gc
import json
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import motet
from motet import cli, training
from motet.cli.arguments import spelt_out
from motet.cli.interrupts import insistent_interrupts
from motet.cli.parsing import whole
from motet.cli.plan_options import chosen_plan, plan_options, takes
from motet.errors import BadOption, Diverged
from motet.plan.presets import PRESETS

SMALL = ["--num-envs", "4", "--num-steps", "8", "--hidden", "8"]
SHORT = [*SMALL, "--total-timesteps", "64", "--evaluate-episodes", "2"]
ROOT = Path(__file__).parents[1]
MOTET = [sys.executable, "-c", "import sys; from motet.cli import main; sys.exit(main())"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys):
    """Run a command in this process -> (exit code, standard output, standard error)."""

    def run(*args):
        code = cli.main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return run


# Before any command.


def test_help_is_quick_and_imports_nothing_heavy():
    def seconds():
        """Of work: waiting for a core that others use does not count."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*MOTET, "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5
    code = "import sys; from motet.cli import main; main(['--help']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"jax", "flax", "tyro", "numpy", "rich"} & set(loaded)


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",)])
def test_help_lists_every_command(run, args):
    code, out, _ = run(*args)
    assert code == 0
    assert set(re.findall(r"^  ([\w-]+) ", out, re.MULTILINE)) == set(cli.COMMANDS)


def test_version_is_the_package_version(run):
    assert run("--version") == (0, "motet 0.1.0\n", "")


def test_an_unknown_command_is_answered_with_the_nearest(run):
    code, out, err = run("trian")
    assert (code, out) == (2, "")
    assert "Did you mean 'train'?" in err


@pytest.mark.parametrize("command", ["train", "graph", "plan"])
def test_a_command_explains_itself_without_an_algorithm(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"motet {command} ALGORITHM" in out
    assert f"motet {command} ppo --help" in " ".join(out.split())


def test_help_of_an_algorithm_lists_its_options_the_runs_and_the_presets(run):
    code, out, _ = run("train", "ppo", "--help")
    assert code == 0
    for option in ("--update-epochs", "--total-timesteps", "--preset", "--per-replica", "--evaluate-episodes"):
        assert option in out
    assert "Passes over each rollout" in out


def test_help_shows_the_algorithms_own_options_first_and_what_plan_options_do(run):
    code, out, _ = run("train", "ppo", "--help")
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", out).split())
    assert code == 0
    assert words.index("--update-epochs") < words.index("--total-timesteps INT") < words.index("--preset")
    assert "NONETYPE" not in words
    assert "Copies of the part that acts" in words and "For sebulba (1), coarse (2)" in words
    assert "motet train ppo CartPole-v1 --total-timesteps 500_000" in words


@pytest.mark.parametrize("command", ["evaluate", "check-env", "graph ppo", "plan ppo"])
def test_every_command_has_an_example(run, command):
    _, out, _ = run(*command.split(), "--help")
    assert "Example: motet " in " ".join(out.split())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ppo", "CartPole-v1", "--gamma", "0.9"], "Did you mean --discount?"),
        (["ppo", "CartPole-v1", "--lr=1e-3"], "Did you mean --learning-rate?"),
        (["ppo", "CartPole-v1", "--ent_coef", "0"], "Did you mean --entropy-weight?"),
        (["ppo", "CartPole-v1", "--n-steps", "8"], "Did you mean --num-steps?"),
        (["ppo", "CartPole-v1", "--timesteps", "8"], "Did you mean --total-timesteps?"),
        (["ppo", "CartPole-v1", "--norm-obs"], "Did you mean --normalize-observation?"),
        (["dqn", "CartPole-v1", "--normalize-observation"], "ppo and batch_ppo do it (--normalize-observation)"),
        (["CartPole-v1", "ppo"], "The algorithm comes before the environment: motet train ppo CartPole-v1"),
    ],
)
def test_what_others_call_it_is_understood(run, args, words):
    code, out, err = run("train", *args)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (["--normalize-reward"], ["--normalize-reward", "True"]),
        (["--normalize_reward", "Pendulum-v1"], ["--normalize-reward", "True", "Pendulum-v1"]),
        (["--no-normalize-reward"], ["--normalize-reward", "False"]),
        (["--normalize-reward", "None", "--anneal"], ["--normalize-reward", "None", "--anneal"]),
        (["--no-anneal"], ["--no-anneal"]),
        ([], []),
    ],
)
def test_an_option_that_may_be_left_open_is_a_flag_too(said, meant):
    assert spelt_out(said, motet.PPO) == meant


def test_make_help_lists_what_can_be_made():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(r"^  make train +train PPO on CartPole", done.stdout, re.MULTILINE)
    assert {line.split()[1] for line in done.stdout.splitlines()} >= {"train", "test", "attack", "help"}


# Lists.


def test_algorithms_are_listed_with_their_actions_and_lags(run):
    code, out, _ = run("algorithms")
    assert code == 0
    assert re.search(r"^ppo +every +4$", out, re.MULTILINE)
    assert re.search(r"^dqn +Discrete +any$", out, re.MULTILINE)
    assert "Deep Q-learning" in out


def test_environments_are_listed_with_their_spaces(run):
    code, out, _ = run("envs")
    assert code == 0
    assert re.search(r"^CartPole-v1 +float32\[4\] +Discrete\(2\) +500$", out, re.MULTILINE)


def test_other_libraries_are_listed_with_the_command_that_installs_what_is_missing(run, monkeypatch):
    monkeypatch.setattr("motet.envs.families.find_spec", lambda name: None if name == "brax" else name)
    _, out, _ = run("envs")
    assert re.search(r"^gymnasium/ID +gymnasium/FrozenLake-v1 +yes$", out, re.MULTILINE)
    assert re.search(r"^brax/ID +brax/ant +pip install 'motet\[brax\]'$", out, re.MULTILINE)


# Training.


def test_train_reports_and_leaves_a_folder_that_evaluate_reads(run):
    code, out, err = run("train", "ppo", "CartPole-v1", "--preset", "anakin", *SHORT)
    assert (code, err) == (0, "")
    assert "steps 64/64" in out
    assert re.search(r"^evaluation  greedy policy: return [\d.]+ ± [\d.]+ over 2 episodes$", out, re.MULTILINE)
    assert "steps       64 in 2 whole iterations" in out
    assert re.search(r"^time        [\d.]+ s, [\d.]+ s of it compiling", out, re.MULTILINE)
    folder = re.search(r"^run folder  (runs/ppo-CartPole-v1-[\d-]+)$", out, re.MULTILINE)[1]
    code, again, _ = run("evaluate", folder, "--episodes", 2)
    assert code == 0
    assert again.strip() in out


def test_train_says_that_steps_are_rounded_and_what_went_over_links(run):
    args = ["--preset", "coarse", "--actors", "2", "--lag", "1", "--serial", "--run-dir", "here"]
    code, out, _ = run("train", "ppo", "CartPole-v1", *args, *SHORT[:-4], "--total-timesteps", "100",
                       "--evaluate-episodes", "0")  # fmt: skip
    assert code == 0
    assert "steps       96 instead of 100: rounded to 3 whole iterations" in out
    assert re.search(r"^policy +learner +actors +6 +[\d,]+ +1$", out, re.MULTILINE)
    assert "evaluation" not in out
    assert json.loads(Path("here/plan.json").read_text())["name"] == "coarse"
    assert run("train", "ppo", "CartPole-v1", "--run-dir", "here", *SHORT)[0] == 2


def test_train_uses_virtual_devices_in_a_process_of_its_own():
    args = ["--devices", "2", "--preset", "anakin", "--shards", "2", "--seed", "1", *SHORT]
    done = subprocess.run([*MOTET, "train", "a2c", "CartPole-v1", *args], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "steps       64 in 2 whole iterations" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ppa", "CartPole-v1"], "There is no algorithm 'ppa'. Did you mean 'ppo'?"),
        (["ppo", "CartPol-v1"], "There is no environment 'CartPol-v1'. Did you mean 'CartPole-v1'?"),
        (["ppo", "CartPole-v1", "--preset", "coars"], "There is no preset 'coars'. Did you mean 'coarse'?"),
        (["ppo", "CartPole-v1", "--preset", "anakin", "--actors", "2"], "has no option --actors; it takes --shards"),
        (
            ["ppo", "CartPole-v1", "--actors", "2"],
            "--actors: for a preset only; name one with --preset (sebulba, coarse",
        ),
        (["ppo", "CartPole-v1", "--preset", "anakin", "--plan", "x.json"], "give one of them"),
        (["ppo", "CartPole-v1", "--plan", "nowhere.json"], "No such file or directory: nowhere.json"),
        (["ppo", "CartPole-v1", "--num-envs", "0"], "num_envs must be at least 1, got 0"),
        (["ppo", "CartPole-v1", "--num-envs", "many"], "expected a whole number such as 500_000 or 5e5"),
        (["ppo", "CartPole-v1", "--total-timesteps", "10"], "total_timesteps must be at least 2,048, got 10"),
        (["ppo", "CartPole-v1", "--nun-envs", "2"], "--num-envs"),
        (["ppo", "CartPole-v1", "--preset", "coarse", "--actors", "0"], "replicas must be a whole number"),
        (["ppo", "CartPole-v1", "--preset", "coarse", "--lag", "9"], "learns from a lag of at most 4"),
        (["ppo", "CartPole-v1", "--devices", "0"], "--devices must be at least 1"),
        (["ppo", "CartPole-v1", "--evaluate-episodes", "-1"], "--evaluate-episodes must be at least 0"),
        (["dqn", "Pendulum-v1"], "DQN chooses Discrete actions"),
        (["ppo"], "ENV"),
        (["--seed", "1", "ppo", "CartPole-v1"], "The algorithm comes first"),
    ],
)
def test_train_refuses_in_one_message_and_leaves_nothing_behind(run, tmp_path, args, words):
    code, out, err = run("train", *args)
    assert (code, out) == (2, "")
    assert words in " ".join(re.sub("[│╭╮╰╯─]", " ", err).split())
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_diverged_run_ends_with_3_and_says_where_its_policy_is(run, monkeypatch):
    def diverge(*args, **options):
        raise Diverged("The metric 'loss' became nan. It was saved in runs/x.", 7)

    monkeypatch.setattr(training, "train", diverge)
    assert run("train", "ppo", "CartPole-v1") == (
        3,
        "",
        "motet: The metric 'loss' became nan. It was saved in runs/x.\n",
    )


def test_an_interrupted_run_ends_with_130_and_keeps_only_what_was_measured(run, monkeypatch, tmp_path):
    def interrupt(*args, run_dir, **options):
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "metrics.jsonl").write_text(measured)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupt)
    measured = ""
    assert run("train", "ppo", "CartPole-v1") == (130, "", "motet: Interrupted.\n")
    assert not list(tmp_path.iterdir())
    measured = "{}\n"
    code, _, err = run("train", "ppo", "CartPole-v1")
    assert code == 130
    assert "What was measured until now is in runs/ppo-CartPole-v1-" in err
    assert len(list(tmp_path.glob("runs/*/metrics.jsonl"))) == 1


def test_ctrl_c_ends_a_real_run(tmp_path):
    args = ["train", "ppo", "CartPole-v1", "--total-timesteps", "1e9", *SMALL]
    with subprocess.Popen([*MOTET, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("compiling"):
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("motet: Interrupted.\n")
    assert "Traceback" not in err


def test_an_interrupt_that_python_drops_comes_again():
    class Thing:
        def __del__(self):
            raise KeyboardInterrupt

    def wait_long():
        Thing()
        gc.collect()
        time.sleep(20)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), insistent_interrupts():
        wait_long()
    assert time.monotonic() - start < 10


def test_an_interrupt_that_comes_again_wakes_whoever_has_just_begun_to_wait():
    class Thing:
        def __del__(self):
            raise KeyboardInterrupt

    def wait_long(busy):
        Thing()
        sum(range(busy))  # In one step of Python: nothing is looked at meanwhile.
        time.sleep(20)

    numbers = range(1_000_000)
    start = time.perf_counter()
    sum(numbers)
    a_second = int(len(numbers) / (time.perf_counter() - start))
    for busy in np.linspace(0.046, 0.058, 25):  # Around the moment at which the interrupt is sent.
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt), insistent_interrupts():
            wait_long(int(a_second * busy))
        assert time.monotonic() - start < 10


def test_tests_of_interrupts_pass_as_a_background_job():
    name = f"{__file__}::{test_an_interrupt_that_python_drops_comes_again.__name__}"
    args = ["sh", "-c", 'trap "" INT; exec "$0" "$@"', sys.executable, "-m", "pytest", "-p", "no:cacheprovider", name]
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stdout


# Graphs and plans.


@pytest.mark.parametrize(("form", "opening"), [("text", "PPO on"), ("dot", "digraph"), ("svg", "<svg"), ("json", "{")])
def test_graph_has_four_forms(run, form, opening):
    code, out, err = run("graph", "ppo", "CartPole-v1", "--format", form, "--output", "graph.out", *SMALL)
    assert (code, out, err) == (0, "", "")
    assert Path("graph.out").read_text().startswith(opening)


def test_graph_takes_the_algorithms_options(run):
    code, out, _ = run("graph", "ppo", "CartPole-v1", *SMALL)
    assert code == 0
    assert "unroll ×8" in out
    assert "float32[T=8,B=4,4]" in out


def test_plan_shows_fragments_programs_and_traffic(run):
    code, out, _ = run("plan", "ppo", "CartPole-v1", "--preset", "coarse", "--lag", "1", *SMALL)
    assert code == 0
    assert re.search(r"^actors +2 +1 +any +act, env$", out, re.MULTILINE)
    assert "receive from learner of the round before, lag 1: policy" in out
    assert re.search(r"^policy +learner +actors +iteration +2 +[\d,]+ +1$", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 80


def test_plan_shows_what_is_cut_inside_a_loop(run):
    _, out, _ = run("plan", "ppo", "CartPole-v1", "--preset", "fine", *SMALL)
    assert re.search(r"^      receive from learner: decision.action\n      call:\n        env\n", out, re.MULTILINE)
    assert re.search(r"^decision +learner +environments +step +16 ", out, re.MULTILINE)


def test_plan_says_that_nothing_is_cut(run):
    _, out, _ = run("plan", "dqn", "CartPole-v1", "--preset", "anakin")
    assert out.endswith("Nothing is cut: no link carries anything.\n")


def test_plan_needs_a_plan_that_fits(run):
    code, _, err = run("plan", "ppo", "CartPole-v1", "--preset", "coarse", "--actors", "3", *SMALL)
    assert code == 2
    assert "4 environments do not divide by 3 replicas" in err


def test_a_plan_that_was_written_is_read_and_checked(run):
    code, out, _ = run(
        "plan", "ppo", "CartPole-v1", "--preset", "central", "--per-replica", "gradient", "--json", *SMALL
    )
    assert code == 0
    assert motet.Plan.from_json(out) == motet.central(per_replica=("gradient",))
    Path("plan.json").write_text(out)
    assert run("check-plan", "plan.json") == (0, "ok\n", "")
    assert run("check-plan", "plan.json", "ppo", "CartPole-v1") == (0, "ok\n", "")
    assert run("plan", "ppo", "CartPole-v1", "--plan", "plan.json", "--json", *SMALL)[1] == out


@pytest.mark.parametrize(
    ("text", "fit", "words"),
    [
        ("not json", [], ["the file is not JSON"]),
        ("[]", [], ['an object with the key "fragments"']),
        ('{"fragments": {"a": {"nodes": ["*"], "replica": 2}}, "link": {}}', [], ["'replica'", "'link'"]),
        ('{"fragments": {"a": {"nodes": ["*"]}}, "links": [], "per_replica": 3}', [], ['"links"', '"per_replica"']),
        ('{"fragments": {"a": {"nodes": ["*"], "replicas": "two", "shards": 0}}}', [], ["'two'", "shards"]),
        ('{"fragments": {"a": {"nodes": ["act", "env"]}}}', ["ppo", "CartPole-v1"], ["'targets' is in no", "'apply'"]),
        ('{"fragments": {"a": {"nodes": ["*"], "replicas": 0}}}', ["ppo", "CartPole-v1"], ["replicas must be"]),
        (
            '{"fragments": {"a": {"nodes": ["act"], "replica": 2}}, "linkz": {}}',
            ["ppo", "CartPole-v1"],
            ["did you mean 'replicas'?", "did you mean 'links'?", "'targets' is in no fragment"],
        ),
    ],
)
def test_check_plan_prints_every_violation_and_ends_with_1(run, tmp_path, text, fit, words):
    (tmp_path / "plan.json").write_text(text)
    code, out, err = run("check-plan", "plan.json", *fit)
    assert (code, err) == (1, "")
    assert all(word in out for word in words)


def test_check_plan_explains_itself_and_misses_a_file(run):
    assert run("check-plan", "--help")[0] == 0
    assert run("check-plan")[0] == 2
    assert run("check-plan", "nowhere.json") == (2, "", "motet: No such file or directory: nowhere.json\n")


@pytest.mark.parametrize(("config", "words"), [(None, "holds no config.json"), ("{", "damaged"), ("{}", "damaged")])
def test_evaluate_refuses_what_is_no_runs_folder(run, tmp_path, config, words):
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    code, _, err = run("evaluate", tmp_path)
    assert code == 2
    assert words in err


# Options.


@pytest.mark.parametrize(("text", "value"), [("500_000", 500_000), ("5e5", 500_000), ("1.5e3", 1500), ("-3", -3)])
def test_whole_numbers_are_read_as_people_write_them(text, value):
    assert whole(text) == value


def test_long_whole_numbers_are_exact():
    assert whole("9007199254740993") == 9007199254740993


@pytest.mark.parametrize("text", ["1.5", "many", "", "nan", "inf", "1e999"])
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises(ValueError, match="expected a whole number"):
        whole(text)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_option_of_a_preset_can_be_given(preset):
    given = {name: parameter.default for name, parameter in takes(preset).items()}
    assert chosen_plan(plan_options()(preset=preset, **given)) == PRESETS[preset]()


def test_a_preset_refuses_what_it_does_not_take():
    with pytest.raises(BadOption, match="it takes --shards"):
        chosen_plan(plan_options()(preset="anakin", learners=2))
