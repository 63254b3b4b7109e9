"""Replicas on several devices share what one of them compiled, and runs what another run did."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine import cache
from motet.engine.compiled import CompiledCall
from motet.engine.cpu.clone import CompiledProgram, template
from motet.engine.cpu.switch import enabled
from tests.laws.cases import ALGORITHMS, assert_identical, learner, run, traced

pytestmark = pytest.mark.skipif(not enabled(), reason="the quick ways are switched off")

OPTIONS: dict[str, str | bool] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


def test_a_clone_computes_the_same_on_its_own_device():
    here, there = jax.devices()[:2]

    def function(state: dict, key: jax.Array) -> jax.Array:
        step = lambda _, x: jnp.tanh(x @ x) + jax.random.normal(key, x.shape) * 0.1234  # noqa: E731
        return jax.lax.fori_loop(0, 3, step, state["x"])

    arguments = {"x": jnp.eye(8)}, jax.random.key(0)
    with cache.bypassed():
        program = jax.jit(function, donate_argnums=0).lower(*arguments).compile(OPTIONS)
    twin = template(CompiledProgram(program, here, OPTIONS, True)).clone(there)
    assert twin is not None
    state, key = jax.device_put(arguments, there)
    result = twin(state, key)
    assert result.devices() == {there}
    assert state["x"].is_deleted()
    np.testing.assert_array_equal(result, program(*arguments))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The blocks that are compiled from here on."""
    labels: list[str] = []
    monkeypatch.setattr(CompiledCall, "_compiler_options", lambda block, _: labels.append(block.label) or {})
    return labels


def test_four_replicas_compile_as_much_as_one_does(compiled):
    # Kept out of the persistent cache, and of a size of its own: what is found there, each device reads for itself.
    algorithm = motet.A2C(num_envs=8, num_steps=3, hidden=(13,))
    found = []
    with cache.bypassed():
        for actors in (1, 4):
            plan = motet.coarse(actors)
            run(traced(algorithm, plan), plan, programs={})
            found.append(sorted(compiled))
            compiled.clear()
    assert found[0] == found[1]
    assert len(found[0]) > 2


def test_a_program_that_cannot_be_copied_is_no_template():
    program = jax.jit(lambda x: jnp.sort(x) + 0.25).lower(jnp.arange(64.0)).compile()
    program(jnp.arange(64.0))  # From now on XLA does not give it out; a template is made before the first call.
    assert template(CompiledProgram(program, jax.devices()[0], {}, True)).clone(jax.devices()[1]) is None


@pytest.fixture
def everything_is_cached():
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    yield
    jax.config.update(name, before)


@pytest.mark.usefixtures("everything_is_cached")
def test_a_program_found_in_the_cache_is_not_cloned():
    """What was read from the cache could be cloned, but the clone would fail when it is called."""
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["impala"], plan)
    first, _ = run(graph, plan, mode="serial", programs={})
    before = cache.hits()
    second, _ = run(graph, plan, mode="serial", programs={})
    assert cache.hits() > before
    assert_identical(learner(graph, first), learner(graph, second))


def test_a_run_with_the_programs_of_another_compiles_nothing(compiled):
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    programs = {}
    first, _ = run(graph, plan, programs=programs)
    assert compiled
    compiled.clear()
    second, _ = run(graph, plan, programs=programs)
    assert not compiled
    assert_identical(learner(graph, first), learner(graph, second))
