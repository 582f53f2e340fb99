"""A policy whose features come from another world."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.wrappers.wrapper import ShuffledPolicy
from robolearn.core import ArraySpec, BadInput, Interface, Observation

SEEN = {"proprio": ArraySpec((2,)), "images.front": ArraySpec((4, 4, 3), "uint8")}
INTERFACE = Interface(SEEN, ArraySpec((1,)), 20.0)


class Remembering:
    """Keeps what it is shown."""

    interface, execute_steps, observes_every_step = INTERFACE, 2, True

    def __init__(self) -> None:
        self.seen: list[tuple[str, Observation]] = []

    def bind(self, offered: Interface) -> None: ...

    def reset(self, seed: int) -> None:
        self.seed = seed

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self.begun = worlds

    def observe(self, observation: Observation) -> None:
        self.seen.append(("observe", observation))

    def act(self, observation: Observation) -> NDArray[np.float32]:
        self.seen.append(("act", observation))
        return np.zeros((len(observation["proprio"]), 2, 1), np.float32)


def observation(worlds: int) -> Observation:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (worlds, 4, 4, 3), dtype=np.uint8)
    return {"proprio": rng.random((worlds, 2), np.float32), "images.front": pictures}


def test_the_feature_is_the_next_world_s_and_all_else_its_own() -> None:
    inner, seen = Remembering(), observation(3)
    policy = ShuffledPolicy(inner, ["images.front"])
    policy.reset(7)
    policy.begin(np.array([True, False, True]))
    policy.observe(seen)
    assert policy.act(seen).shape == (3, 2, 1)
    assert [how for how, _ in inner.seen] == ["observe", "act"] and inner.seed == 7 and inner.begun[2]
    for _, shown in inner.seen:
        np.testing.assert_array_equal(shown["proprio"], seen["proprio"])
        for world, other in enumerate((1, 2, 0)):
            np.testing.assert_array_equal(shown["images.front"][world], seen["images.front"][other])
    assert (policy.interface, policy.execute_steps, policy.observes_every_step) == (INTERFACE, 2, True)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(BadInput, match=r"got images.wrist; available: proprio, images.front \(did you mean"):
        ShuffledPolicy(Remembering(), ["images.wrist"])
    with pytest.raises(BadInput, match="got 1 world, expected at least 2"):
        ShuffledPolicy(Remembering(), ["proprio"]).act(observation(1))
