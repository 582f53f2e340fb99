"""A critic that observes what the policy does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.core import BadInput

Make = Callable[..., Any]


def blind(world: Any, make_policy: Make) -> Any:
    """A policy of the picture alone: `proprio`, where the point is, stays the world's."""
    sees = replace(world.interface, observation={"images.front": world.interface.observation["images.front"]})
    return make_policy(sees, horizon=2, execute=2, gain=5.0)


@pytest.mark.long
@pytest.mark.parametrize("algo", ["reinflow", "dppo"])
def test_the_critic_learns_from_what_the_policy_does_not_see(
    make_policy: Make, point: Make, kit: Any, algo: str
) -> None:
    """The picture is dark here; where the point is stands in `proprio`, which only one of the two critics sees."""
    apart = {}
    for sees in ((), ("proprio",)):
        world = point(16, pixels=True)
        see = world._see

        def dark(see: Any = see) -> dict[str, np.ndarray]:
            return {key: np.zeros_like(value) if key != "proprio" else value for key, value in see().items()}

        world._see = dark
        settings = {"critic_observe": sees, "critic_epochs": 10, "critic_lr": 3e-3, "critic_warmup": 100}
        made = kit.runner(world, blind(world, make_policy), algo, env_steps=20_000, **settings)
        assert set(made.algorithm.features(world.reset(seed=0)[0])) == {"images.front", *sees}
        kit.run(made, 0, 15)
        # Near enough to be there in one step, and too far for the steps of an episode.
        seen = {"images.front": torch.zeros((2, 8, 8, 3), dtype=torch.uint8)}
        seen["proprio"] = torch.tensor([[0.2, 0.0], [0.8, 0.0]])
        near, far = made.algorithm.baseline.values(seen, torch.ones(2)).tolist()
        apart[sees] = near - far
        assert set(made.algorithm.policy().interface.observation) == {"images.front"}
    assert abs(apart[()]) < 1e-5 and apart["proprio",] > 0.5, apart


def test_its_features_are_standardised_by_the_first_rollout(make_policy: Make, point: Make, kit: Any) -> None:
    world = point(8, pixels=True)
    made = kit.runner(world, blind(world, make_policy), critic_observe=("proprio",))
    kit.run(made, 0, 1)
    seen = made.algorithm.critic_input
    first = seen.normalizer.get_buffer("proprio/mean").clone()
    assert first.abs().max() > 0
    kit.run(made, 1, 3)
    assert torch.equal(seen.normalizer.get_buffer("proprio/mean"), first)
    values = torch.randn(500, 2) * 3.0 + 7.0
    fresh = type(seen)(seen.sees, torch.device("cpu"))
    fresh.fit({"proprio": values})
    scaled = fresh({"proprio": values})["proprio"]
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(0, correction=0), 1.0, atol=1e-4)


@pytest.mark.long
def test_a_resumed_run_has_the_same_critic(make_policy: Make, point: Make, kit: Any) -> None:
    def begin() -> Any:
        world = point(8, pixels=True)
        return kit.runner(world, blind(world, make_policy), critic_observe=("proprio",))

    whole = begin()
    kit.run(whole, 0, 2)
    state, meta = whole.state()
    state = {key: value.clone() for key, value in state.items()}
    expected = kit.run(whole, 2, 4)
    again = begin()
    again.load_state(state, meta)
    np.testing.assert_equal(kit.run(again, 2, 4), expected)
    kit.assert_same(kit.tensors(whole), kit.tensors(again))


def test_what_the_worlds_do_not_have_is_refused(make_policy: Make, point: Make, kit: Any) -> None:
    with pytest.raises(BadInput, match=r"observation of the critic's worlds: got no 'objects'.*available: proprio"):
        kit.runner(point(4), critic_observe=("objects",))
