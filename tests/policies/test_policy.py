"""ChunkPolicy: the numpy side, noise per world, history; EMA by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.kinds.flow import FlowPolicy
from policies.normalize import Normalizer
from policies.policy import BLOCK, ChunkPolicy, WorldNoise
from policies.settings import FlowConfig, NetworkConfig
from policies.wrappers.wrapper import PolicyWrapper
from robolearn.core import ArraySpec, BadInput, Interface, NonFinite, Policy

SMALL = NetworkConfig(width=32, depth=2, image_features=8)
STATE = Interface({"proprio": ArraySpec((3,)), "objects": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)
PIXELS = Interface({"images.front": ArraySpec((16, 24, 3), "uint8")}, ArraySpec((2,)), control_hz=20.0)


def make(interface: Interface = STATE, **settings) -> ChunkPolicy:
    torch.manual_seed(0)
    net = FlowPolicy(FlowConfig(**({"network": SMALL} | settings)), interface)
    return ChunkPolicy(net, Normalizer(interface), interface)


def see(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal((n, *s.shape)).astype(np.float32) for k, s in STATE.observation.items()}


def test_act_gives_chunks_in_range_and_is_a_policy():
    policy = make(execute=3)
    chunk = policy.act(see(5))
    assert isinstance(policy, Policy)
    assert chunk.shape == (5, 4, 2)
    assert chunk.dtype == np.float32
    assert np.abs(chunk).max() <= 1
    assert policy.execute_steps == 3


def test_noise_depends_on_seed_world_and_call_only():
    many, few = WorldNoise((4, 2), 7), WorldNoise((4, 2), 7)
    for call in range(BLOCK + 2):  # over the edge of a block
        a, b = many.draw(6), few.draw(2 if call != 3 else 5)
        np.testing.assert_array_equal(a[: len(b)], b)
    later = WorldNoise((4, 2), 7)
    later.call = many.call
    np.testing.assert_array_equal(later.draw(6), many.draw(6))
    assert not np.array_equal(WorldNoise((4, 2), 8).draw(6), WorldNoise((4, 2), 7).draw(6))
    big = WorldNoise((4, 2), 1).draw(2000)
    assert abs(big.mean()) < 0.03 and abs(big.std() - 1) < 0.03
    assert len(np.unique(big)) > 0.999 * big.size


def test_a_world_acts_the_same_among_few_and_many():
    policy = make()
    observation = see(6)
    policy.reset(3)
    together = [policy.act(observation) for _ in range(3)]
    policy.reset(3)
    alone = [policy.act({k: v[:2] for k, v in observation.items()}) for _ in range(3)]
    np.testing.assert_allclose([c[:2] for c in together], alone, atol=1e-6)
    policy.reset(3)
    np.testing.assert_array_equal(policy.act(observation), together[0])
    assert not np.allclose(together[0], together[1])


@pytest.mark.parametrize("observe", [1, 2])
def test_warming_leaves_no_trace(observe):
    plain, warmed = make(observe=observe), make(observe=observe)
    warmed.warm()  # before the first decision there is nothing to compute
    for call in range(4):
        expected, got = plain.act(see(1, call)), warmed.act(see(1, call))
        np.testing.assert_array_equal(got, expected)
        PolicyWrapper(warmed).warm()


def test_pixels_take_the_same_path():
    policy = make(PIXELS)
    picture = np.random.default_rng(0).integers(0, 256, (3, 16, 24, 3), dtype=np.uint8)
    assert policy.act({"images.front": picture}).shape == (3, 4, 2)


def test_history_is_oldest_first_and_forgotten_by_worlds_that_begin():
    policy = make(Interface({"proprio": ArraySpec((1,))}, ArraySpec((2,)), 20.0), observe=3, execute=1)
    seen = []
    encode = policy.net.encode
    policy.net.encode = lambda o: (seen.append(o["proprio"].clone()), encode(o))[1]
    for value in (1.0, 2.0, 3.0):
        policy.act({"proprio": np.full((2, 1), value, np.float32)})
    policy.begin(np.array([True, False]))
    policy.act({"proprio": np.full((2, 1), 4.0, np.float32)})
    assert [s[1, :, 0].tolist() for s in seen] == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert seen[-1][0, :, 0].tolist() == [4, 4, 4]


def test_what_cannot_be_acted_on():
    policy = make()
    with pytest.raises(BadInput, match="objects"):
        policy.act({"proprio": np.zeros((1, 3), np.float32)})
    with pytest.raises(BadInput, match="proprio"):
        policy.act({"proprio": np.zeros((1, 4), np.float32), "objects": np.zeros((1, 2), np.float32)})
    bad = see(3)
    bad["objects"][1, 0] = np.nan
    with pytest.raises(NonFinite, match=r"\[1\]"):
        policy.act(bad)
