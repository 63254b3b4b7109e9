"""Networks are saved by name with the run, found again by whoever loads its policy, and only with trust imported."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet import cli, named
from motet.runs import options

NETS = """
import flax.linen as nn
import optax


class Tower(nn.Module):
    outputs: int
    width: int = 3

    @nn.compact
    def __call__(self, features):
        return nn.Dense(self.outputs)(nn.relu(nn.Dense(self.width)(features)))


def value(spec):
    return Tower(1, width=2)


def optimizer(updates):
    return optax.adam(optax.linear_schedule(1e-3, 0.0, updates))


def schedule(count):
    return 1e-3 / (count + 1)
"""
TINY: dict[str, Any] = {"num_envs": 2, "num_steps": 4, "hidden": (3,)}
SHORT = ["--num-envs", "2", "--num-steps", "4", "--total-timesteps", "16", "--evaluate-episodes", "2"]
OWN = ["--policy-network", "nets_tried.py:Tower", "--value-network", "nets_tried.py:value"]
LEARNS = ["--optimizer", "nets_tried.py:optimizer", "--learning-rate", "nets_tried.py:schedule"]
ZEROS = np.zeros(4, np.float32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, the module of its networks and its user's key."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "nets_tried.py").write_text(NETS)
    args = ["--policy-network", f"{folder}/nets_tried.py:Tower", "--value-network", f"{folder}/nets_tried.py:value"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setattr(sys, "path", [*sys.path])
        assert cli.main(["train", "a2c", "CartPole-v1", *SHORT, *args, "--run-dir", str(folder / "run")]) == 0
    forget()
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(trained / "config"))
    (tmp_path / "nets_tried.py").unlink()  # one of that name is enough
    return Path(shutil.copytree(trained / "run", tmp_path / "run"))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(named, "_spelled", {})
    Path("nets_tried.py").write_text(NETS)
    yield
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.endswith("_tried")]:
        del sys.modules[name]


def save(algorithm: motet.Algorithm) -> motet.Policy:
    """A policy that nothing was learned for, in the folder `saved`."""
    import jax

    bound = algorithm.bind(motet.Spec(motet.Box(-1.0, 1.0, (4,)), motet.Discrete(2), 10))
    policy = motet.Policy(bound, jax.device_get(jax.jit(lambda key: bound.policy(bound.init(key)))(jax.random.key(0))))
    Path("saved").mkdir(exist_ok=True)
    policy.save(Path("saved"))
    return policy


def told(file: str = "saved/policy.json") -> dict[str, Any]:
    return json.loads(Path(file).read_text())


def change(file: str, **changed: Any) -> None:
    now = told(file)
    Path(file).write_text(json.dumps({**now, "options": {**now["options"], **changed}}))


class Here(nn.Module):
    outputs: int
    widths: tuple[int, ...] = (3,)
    activation: Any = nn.tanh
    dtype: Any = None

    @nn.compact
    def __call__(self, features: Any) -> Any:
        for width in self.widths:
            features = self.activation(nn.Dense(width, dtype=self.dtype)(features))
        return nn.Dense(self.outputs)(features)


def here(spec: motet.Spec) -> nn.Module:
    return Here(1)


PLACE = "tests.runs.test_saved_networks"


def test_on_the_command_line_they_are_named_kept_and_found_again(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    args = ["a2c", "CartPole-v1", *SHORT, *OWN, *LEARNS]
    assert cli.main(["train", *args, "--run-dir", "run"]) == 0, capsys.readouterr().err
    for file in ("run/config.json", "run/policy.json"):
        kept, nets = told(file)["options"], tmp_path / "nets_tried.py"
        assert kept["policy_network"] == {"code": f"{nets}:Tower"}
        assert kept["value_network"] == {"code": f"{nets}:value"}
        assert kept["optimizer"] == {"text": f"{nets}:optimizer"}
        assert kept["learning_rate"] == {"text": f"{nets}:schedule"}
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    forget()
    assert cli.main(["evaluate", "../run", "--episodes", "2"]) == 0, capsys.readouterr().err
    assert cli.main(["train", "a2c", "CartPole-v1", *SHORT, *OWN, "--run-dir", "other"]) == 2
    assert "There is no file" in capsys.readouterr().err


def test_options_that_take_code_explain_themselves(capsys: Any) -> None:
    assert cli.main(["train", "ppo", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in ("--policy-network NAME", "--learning-rate FLOAT|NAME", "--optimizer NAME", "leaky_relu", "silu"):
        assert words in out, words
    assert cli.main(["graph", "ppo", "CartPole-v1", "--policy-network", "Tower"]) == 2
    assert "my_nets.py:Tower, got 'Tower'" in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert cli.main(["graph", "ppo", "CartPole-v1", "--learning-rate", "fast"]) == 2
    assert "expected a number or a name" in " ".join(capsys.readouterr().err.replace("│", "").split())


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (Here(2), {"code": f"{PLACE}:Here", "fields": {"outputs": 2}}),
        (
            Here(2, widths=(3, 4), activation=nn.relu, dtype=jnp.bfloat16),
            {
                "code": f"{PLACE}:Here",
                "fields": {
                    "outputs": 2,
                    "widths": [3, 4],
                    "activation": {"code": "flax.linen:relu"},
                    "dtype": {"dtype": "bfloat16"},
                },
            },
        ),
        (Here, {"code": f"{PLACE}:Here"}),
        (
            nn.Sequential([nn.Dense(3), nn.silu, nn.Dense(2, use_bias=False)]),
            {
                "code": "flax.linen:Sequential",
                "fields": {
                    "layers": [
                        {"code": "flax.linen:Dense", "fields": {"features": 3}},
                        {"code": "flax.linen:silu"},
                        {"code": "flax.linen:Dense", "fields": {"features": 2, "use_bias": False}},
                    ]
                },
            },
        ),
    ],
    ids=["a module", "its fields", "a class", "of flax"],
)
def test_what_is_kept_makes_the_same_network(given: Any, kept: Any) -> None:
    policy = save(motet.A2C(**TINY, policy_network=given, value_network=here))
    assert told()["options"]["policy_network"] == kept
    loaded = motet.Policy.load("saved", motet.A2C)
    if "bfloat16" not in str(kept):  # jnp.bfloat16 comes back as its dtype
        assert loaded.algorithm == policy.algorithm
    observation = np.float32([0.1, -0.2, 0.3, 0.4])
    assert loaded(observation) == policy(observation)
    assert motet.Policy.load("saved", motet.A2C(policy_network=given, value_network=here)).algorithm.hidden == (3,)


def test_what_has_no_name_is_trained_with_and_must_be_given_again() -> None:
    unnamed = motet.A2C(**TINY, policy_network=lambda spec: Here(2), learning_rate=lambda count: 1e-3)
    result = motet.train(unnamed, "CartPole-v1", motet.anakin(), total_timesteps=16, run_dir="run")
    kept = told("run/policy.json")["options"]
    assert kept["policy_network"]["unnamed"].startswith(PLACE) and "<lambda>" in kept["policy_network"]["unnamed"]
    assert set(kept["learning_rate"]) == {"text"} and told("run/config.json")["options"] == kept
    with pytest.raises(
        motet.BadOption, match=r"policy_network was .*<lambda>, which has no name.*Policy\.load\(folder"
    ):
        motet.Policy.load("run", motet.A2C)
    loaded = motet.Policy.load("run", unnamed)
    np.testing.assert_array_equal(loaded(ZEROS), result.policy(ZEROS))
    wrong = motet.A2C(policy_network=Here(2, widths=(7,)))
    with pytest.raises(motet.MotetError, match="should have shape"):
        motet.Policy.load("run", wrong)


def test_the_optimiser_is_not_needed_again() -> None:
    import optax

    save(motet.A2C(**TINY, optimizer=optax.adam(1e-3), learning_rate="nets_tried:schedule"))
    assert told()["options"]["learning_rate"] == {"text": "nets_tried:schedule"}
    Path("nets_tried.py").write_text("1 / 0")
    forget()
    assert "optax" in told()["options"]["optimizer"]["text"]
    assert motet.Policy.load("saved", motet.A2C).algorithm == motet.A2C(**TINY)


def test_what_cannot_be_found_again_is_said() -> None:
    save(motet.A2C(**TINY, policy_network="nets_tried:Tower"))
    forget()
    Path("nets_tried.py").write_text("")
    with pytest.raises(motet.BadOption, match=r"nets_tried:Tower, which cannot be found: There is no name"):
        motet.Policy.load("saved", motet.A2C)
    save(motet.A2C(**TINY, policy_network=Here(2)))
    kept = {"code": f"{PLACE}:Here", "fields": {"outputs": 2, "depth": 3}}
    change("saved/policy.json", policy_network=kept)
    with pytest.raises(motet.BadOption, match="Here is not what it was"):
        motet.Policy.load("saved", motet.A2C)
    change("saved/policy.json", policy_network={"code": "__main__:Gone"})
    with pytest.raises(motet.BadOption, match="defined in a script; in a module of its own it is found"):
        motet.Policy.load("saved", motet.A2C, trust=True)


EVIL = "open({!r}, 'w').close()\nfrom nets_tried import *\n"


@pytest.mark.parametrize(
    "named_as",
    [
        {"code": "evil_tried:Tower"},
        {"code": "evil_tried:Tower", "fields": {"outputs": 2}},
        {"code": "flax.linen:Sequential", "fields": {"layers": [{"code": "evil_tried:Tower"}]}},
    ],
)
def test_a_strangers_network_is_not_imported_unasked(
    named_as: Any, trained: Path, run: Path, tmp_path: Path, capsys: Any
) -> None:
    ran = tmp_path / "ran"
    Path("evil_tried.py").write_text(EVIL.format(str(ran)))
    change("run/policy.json", policy_network=named_as)
    with pytest.raises(motet.BadOption, match=r"evil_tried would be imported, which runs their code.*trust=True"):
        motet.Policy.load("run", motet.A2C)
    capsys.readouterr()
    assert cli.main(["evaluate", "run", "--episodes", "1"]) == 2
    assert "evil_tried would be imported" in capsys.readouterr().err
    nets = trained / "nets_tried.py"
    mine = motet.A2C(policy_network=f"{nets}:Tower", value_network=f"{nets}:value")
    assert motet.Policy.load("run", mine)
    assert not ran.exists()
    if "layers" not in str(named_as):
        assert motet.Policy.load("run", motet.A2C, trust=True)
        assert ran.exists()


def test_another_user_is_told_of_every_module_and_asked(
    run: Path, capsys: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    assert motet.Policy.load("run", motet.A2C)
    forget()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert cli.main(["evaluate", "run", "--episodes", "1"]) == 2
    assert "nets_tried.py would be imported" in capsys.readouterr().err
    with pytest.raises(motet.BadOption, match="trust=True"):
        motet.Policy.load("run", motet.A2C)
    assert "nets_tried" not in sys.modules
    assert cli.main(["evaluate", "run", "--episodes", "1", "--trust"]) == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"policy_network": "evil_tried:Tower"}, "policy_network should be a number or an object"),
        ({"learning_rate": "evil_tried:schedule"}, "learning_rate should be a number or an object"),
        ({"optimizer": "evil_tried:optimizer"}, "optimizer should be a number or an object"),
        ({"unheard": {"code": "nets_tried:Tower"}}, "A2C has no unheard"),
        ({"policy_network": {"code": 3}}, "policy_network should name code"),
        ({"policy_network": {"code": "flax.linen:relu", "fields": {}}}, "should be a flax module and its fields"),
        ({"policy_network": {"code": "flax.linen:Dense", "fields": 3}}, "should be a flax module and its fields"),
    ],
)
def test_damage_is_seen_and_imports_nothing(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    Path("evil_tried.py").write_text(EVIL.format(str(ran)))
    save(motet.A2C(**TINY))
    change("saved/policy.json", **changed)
    with pytest.raises(motet.MotetError) as caught:
        motet.Policy.load("saved", motet.A2C, trust=True)
    assert words in str(caught.value) and "is damaged" in str(caught.value)
    assert not ran.exists()


def test_what_motet_itself_imports_needs_no_trust(monkeypatch: Any, tmp_path: Path) -> None:
    from motet.algorithms.networks import MLP

    layers = nn.Sequential([nn.Dense(3), nn.tanh, nn.Dense(2)])
    save(motet.A2C(**TINY, policy_network=layers, value_network=MLP((2,), 1)))
    assert "signature" not in told()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert motet.Policy.load("saved", motet.A2C)
    assert options.code_names(told()["options"]) == [
        "flax.linen:Dense",
        "flax.linen:Sequential",
        "flax.linen:tanh",
        "motet.algorithms.networks:MLP",
    ]
