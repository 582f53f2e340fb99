"""Exact continuation: whatever the algorithm, the policy and the world, a resumed run repeats an uninterrupted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from robolearn.rl.algorithms import OnPolicyConfig, algorithms
from robolearn.rl.runner import Runner

pytestmark = pytest.mark.long

Make = Callable[..., Any]
ALGOS = tuple(algorithms(OnPolicyConfig))


@pytest.mark.parametrize("forgetful", [False, True], ids=["snapshot", "no-snapshot"])
@pytest.mark.parametrize("noise", ["NOISE", "CALIBRATED"])
@pytest.mark.parametrize("family", ["flow", "diffusion"])
@pytest.mark.parametrize("algo", ALGOS)
def test_a_resumed_run_goes_on_bit_for_bit(
    make_policy: Make, point: Make, kit: Any, algo: str, family: str, noise: str, forgetful: bool
):
    settings: dict[str, Any] = {"noise": getattr(kit, noise), "regulariser": "kl", "regularisation": 0.1}
    settings |= {"target_kl": 100.0} | ({} if algo in ("grpo", "srpo") else {"critic_warmup": 1})

    def begin() -> Runner:
        world = point(8, forgetful=forgetful)
        policy = make_policy(world.interface, family=family, horizon=2, execute=2, gain=5.0)
        return kit.runner(world, policy, algo, **settings)

    whole = begin()
    kit.run(whole, 0, 3)
    state, meta = whole.state()
    state = {key: value.clone() for key, value in state.items()}
    lr = whole.algorithm.policy_step.lr  # type: ignore[attr-defined]
    # It has moved, so a resumed run must know it. SRPO learns nothing of groups whose episodes all end alike, and where
    # the noise of a diffusion policy is calibrated all of these do.
    assert lr > 5e-4 or (algo, family, noise) == ("srpo", "diffusion", "CALIBRATED")
    expected = kit.run(whole, 3, 6)
    again = begin()
    again.load_state(state, meta)
    assert again.algorithm.policy_step.lr == lr  # type: ignore[attr-defined]
    np.testing.assert_equal(kit.run(again, 3, 6), expected)
    kit.assert_same(kit.tensors(whole), kit.tensors(again))
    assert again.calibration == whole.calibration and again.env_steps == whole.env_steps
    assert again.iterations == whole.iterations


@pytest.mark.parametrize("algo", ALGOS)
def test_worlds_that_must_step_together_are_resumed_too(point: Make, kit: Any, algo: str):
    whole, again = (kit.runner(point(8, together=True), algo=algo) for _ in range(2))
    kit.run(whole, 0, 2)
    state, meta = whole.state()
    state = {key: value.clone() for key, value in state.items()}
    expected = kit.run(whole, 2, 4)
    again.load_state(state, meta)
    np.testing.assert_equal(kit.run(again, 2, 4), expected)
    kit.assert_same(kit.tensors(whole), kit.tensors(again))


def test_worlds_whose_state_cannot_be_read_have_time_for_two_episodes(point: Make, kit: Any):
    tells, forgets = (
        kit.runner(point(8, limit=100, forgetful=forgetful), chunks_per_rollout=15) for forgetful in (False, True)
    )
    assert tells.iterations_between_states(5) == 5
    assert forgets.iterations_between_states(5) == 7  # 200 steps, 15 decisions of 2 each
    assert forgets.iterations_between_states(20) == 20
    # Where every rollout begins anew, a state ends nothing.
    assert kit.runner(point(8, limit=100, forgetful=True), algo="grpo").iterations_between_states(5) == 5


def test_a_state_forgets_the_returns_of_episodes_that_it_ends(point: Make, kit: Any):
    made = kit.runner(point(8, forgetful=True))
    made.iterate(0)
    made.algorithm.scale._running[:] = 3.0
    made.returns.now[:] = 3.0
    made.engine.elapsed[:], made.engine.solved[:] = 3, True
    tensors, _ = made.state()
    assert tensors["scale"][3:].tolist() == [0.0] * 8
    assert not made.algorithm.scale._running.any() and not made.returns.now.any()
    assert not made.engine.elapsed.any() and not made.engine.solved.any()


@pytest.mark.parametrize("algo", ["reinflow", "grpo"])
def test_a_resumed_run_goes_on_bit_for_bit_in_the_real_world(make_policy: Make, kit: Any, algo: str):
    from sim.registry import make_env

    settings: dict[str, Any] = {"chunks_per_rollout": 7} if algo == "reinflow" else {"group": 2}

    def begin() -> Runner:
        world = make_env("lift", 4, threads=1, reward="dense")
        return kit.runner(world, make_policy(world.interface), algo, env_steps=10_000, **settings)

    whole, quiet, again = begin(), begin(), begin()
    first, last = (4, 6) if algo == "reinflow" else (1, 2)
    kit.run(whole, 0, first)  # 112 steps: over the end of the first episodes
    state, meta = whole.state()
    state = {key: value.clone() for key, value in state.items()}
    expected = kit.run(whole, first, last)
    again.load_state(state, meta)
    np.testing.assert_equal(kit.run(again, first, last), expected)
    kit.run(quiet, 0, last)
    final = kit.tensors(whole)
    kit.assert_same(final, kit.tensors(again))
    kit.assert_same(final, kit.tensors(quiet))  # asking for the state changes nothing
    if algo == "reinflow":
        assert (final["actor/net.field.mlp.last.bias"] != final["actor/reference.field.mlp.last.bias"]).any()
