"""Catch: a ball, a paddle, and who meets whom."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.envs import make
from motet.flow.environment import advance, begin

LEFT, STAY, RIGHT = 0, 1, 2
KEY = jax.random.key(0)


def play(policy, count=64):
    """An episode under policy(ball's column, paddle's) -> boards [10, B, 10, 5], rewards and ends [9, B]."""
    env = make("Catch-v0")

    def one(carry, _):
        state, board = carry
        ball, paddle = jnp.argmax(board[:-1].sum(0)), jnp.argmax(board[-1])
        state, board, *ending = env.step(state, jnp.int32(policy(ball, paddle)), KEY)
        return (state, board), (board, *ending)

    def episode(key):
        state, board = env.reset(key)
        _, (boards, *endings) = jax.lax.scan(one, (state, board), None, 9)
        return jnp.concatenate([board[None], boards]), *endings

    played = jax.jit(jax.vmap(episode, out_axes=1))(jax.random.split(KEY, count))
    return tuple(np.asarray(leaf) for leaf in played)


def follow(ball, paddle):
    return 1 + jnp.sign(ball - paddle)


def test_the_ball_starts_in_every_column_of_the_top_and_the_paddle_in_the_middle():
    boards, _, _ = play(follow, count=512)
    columns = boards[0][:, 0].sum(0)
    assert columns.sum() == 512 and np.all(columns > 512 / 5 * 0.7)
    np.testing.assert_array_equal(boards[0][:, 9], np.tile([0, 0, 1, 0, 0], (512, 1)))
    assert boards[0].sum() == 2 * 512


def test_the_ball_falls_straight_a_row_a_step():
    boards, _, _ = play(lambda ball, paddle: STAY)
    for row in range(9):
        np.testing.assert_array_equal(boards[row][:, row], boards[0][:, 0])


def test_an_episode_ends_at_its_ninth_step_and_not_before():
    _, rewards, ends = play(follow)
    assert not ends[:8].any() and ends[8].all()
    assert not rewards[:8].any()


def test_following_the_ball_always_catches_it():
    boards, rewards, _ = play(follow)
    np.testing.assert_array_equal(rewards[8], 1)
    np.testing.assert_array_equal(boards[9].sum((1, 2)), 1)  # the ball is in the paddle: one cell


def test_fleeing_the_ball_always_misses_it():
    boards, rewards, _ = play(lambda ball, paddle: jnp.where(ball >= 2, LEFT, RIGHT))
    np.testing.assert_array_equal(rewards[8], -1)
    np.testing.assert_array_equal(boards[9].sum((1, 2)), 2)


@pytest.mark.parametrize(
    ("action", "columns"), [(LEFT, [2, 1, 0, 0, 0]), (STAY, [2, 2, 2, 2, 2]), (RIGHT, [2, 3, 4, 4, 4])]
)
def test_the_paddle_moves_a_column_and_stops_at_the_walls(action, columns):
    boards, _, _ = play(lambda ball, paddle: action)
    for board, column in zip(boards, columns, strict=False):
        np.testing.assert_array_equal(board[:, 9], np.tile(np.eye(5)[column], (64, 1)))


def test_episodes_follow_one_another_every_nine_steps():
    env = make("Catch-v0")

    def one(episode, key):
        return advance(env, episode, jnp.ones(8, jnp.int32), jax.random.split(key, 8))

    @jax.jit
    def three_episodes(key):
        episode, _, _ = begin(env, jax.random.split(key, 8))
        return jax.lax.scan(one, episode, jax.random.split(key, 27))[1]

    steps = three_episodes(KEY)
    ninth = np.arange(1, 28) % 9 == 0
    np.testing.assert_array_equal(steps.terminated, np.tile(ninth[:, None], (1, 8)))
    assert not steps.truncated.any()
    np.testing.assert_array_equal(steps.observation[ninth, :, 0].sum(-1), 1)  # a new ball at the top
    np.testing.assert_array_equal(steps.next_observation[ninth, :, :9].sum((-1, -2)), 0)  # the old one landed
    np.testing.assert_array_equal(steps.finished_length[ninth], 9)
    np.testing.assert_array_equal(steps.finished_return[ninth], steps.reward[ninth])
