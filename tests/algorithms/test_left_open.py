"""What PPO's defaults leave open is settled when its task is known, and a run's configuration says how."""

import pytest

import motet
from motet.flow.spaces import Box, Dict, Discrete, Space
from motet.runs import options

FEW = Discrete(3)
REAL = Box(-1.0, 1.0, (2,))
SEEN = Box(-1.0, 1.0, (4,))


def chosen(actions: Space, **given: object) -> dict[str, object]:
    """What the configuration of a run says."""
    spec = motet.Spec(SEEN, actions, 10)
    return options.to_json(motet.PPO(**given).bind(spec))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 32),
        ({"num_envs": 64, "num_steps": 128}, 32),
        ({"num_envs": 8, "num_steps": 16}, 2),
        ({"num_envs": 3, "num_steps": 100}, 4),  # 300 steps have no 32 equal parts
        ({"num_envs": 2, "num_steps": 4}, 1),
        ({"core": "gru"}, 8),  # whole sequences: no more than environments
        ({"core": "gru", "num_envs": 6, "num_steps": 50}, 3),
        ({"num_minibatches": 5}, 5),
    ],
)
def test_minibatches_are_at_most_32_of_at_least_64_steps(given: dict[str, int], count: int) -> None:
    assert chosen(FEW, **given)["num_minibatches"] == count


def test_rewards_are_normalised_where_actions_are_continuous() -> None:
    assert [chosen(actions)["normalize_reward"] for actions in (FEW, REAL)] == [False, True]
    for given in (False, True):
        assert [chosen(actions, normalize_reward=given)["normalize_reward"] for actions in (FEW, REAL)] == [given] * 2


@pytest.mark.parametrize(
    ("observations", "normalised"),
    [
        (SEEN, False),
        (Box((-1.0, -12.5), (1.0, 12.5), (2,)), True),
        (Box((-10.0, -1.0), (10.0, 1.0), (2,)), False),  # no more than 10
        (Box((-1.0, float("-inf")), (20.0, float("inf")), (2,)), False),  # who knows how far
        (Box(0.0, 255.0, (4, 4, 1), "uint8"), False),  # a picture
        (Dict({"small": SEEN, "large": Box(-30.0, 30.0, (3,))}), True),
        (motet.make("Acrobot-v1").observation_space, True),
        (motet.make("CartPole-v1").observation_space, False),
        (motet.make("Pendulum-v1").observation_space, False),
    ],
)
def test_observations_are_normalised_where_some_bound_is_far_off(observations: Space, normalised: bool) -> None:
    bound = motet.PPO().bind(motet.Spec(observations, FEW, 10))
    assert bound.normalize_observation is normalised
    for given in (False, True):
        assert motet.PPO(normalize_observation=given).bind(bound.spec).normalize_observation is given


def test_binding_leaves_the_algorithm_open() -> None:
    ppo = motet.PPO()
    ppo.bind(motet.Spec(SEEN, REAL, 10))
    assert (ppo.num_minibatches, ppo.normalize_reward, ppo.normalize_observation) == (None, None, None)
