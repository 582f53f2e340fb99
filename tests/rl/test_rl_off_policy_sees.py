"""Off-policy learning from pictures: one encoding of each frame, in critics, proposals and replay alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import save_policy
from policies.storage.loading import open_policy
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.replay import PlayedEpisode, ReplayBuffer
from robolearn.rl.algorithms.dsrl import Dsrl
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.algorithms.proposals import Proposals
from robolearn.rl.algorithms.rlpd import Rlpd
from robolearn.rl.off_policy_settings import DsrlConfig, ProposalsConfig, RlpdConfig

PICTURE = ArraySpec((32, 32, 3), "uint8")
SEEN = {"images.front": PICTURE, "images.wrist": PICTURE, "proprio": ArraySpec((2,))}
INTERFACE = Interface(SEEN, ArraySpec((3,)), 20.0, "panda", "tcp_delta")
SMALL: dict[str, Any] = {"critics": 2, "subset": 1, "width": 16, "depth": 1, "batch": 8, "warmup": 0}
T = 9


def base() -> ChunkPolicy:
    torch.manual_seed(0)
    network = NetworkConfig(width=16, depth=1, image_features=8)
    net = FlowConfig(network=network, horizon=4, execute=2).build(INTERFACE)
    statistics = {
        "proprio": {"mean": [0.5, 0.5], "std": [0.3, 0.3]},
        "action": {"min": [-1.0] * 3, "max": [1.0] * 3},
    }
    return ChunkPolicy(net, Normalizer.from_statistics(INTERFACE, statistics), INTERFACE)


def frames(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    pictures = {key: rng.integers(0, 255, (count, 32, 32, 3), dtype=np.uint8) for key in SEEN if "images" in key}
    return pictures | {"proprio": rng.random((count, 2), np.float32)}


def episode(seed: int = 0) -> PlayedEpisode:
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (T, 3)).astype(np.float32)
    return PlayedEpisode(frames(T + 1, seed), action, np.zeros(T, np.float32), np.arange(T) < 4, False, False)


def condition(policy: ChunkPolicy, seen: dict[str, np.ndarray]) -> torch.Tensor:
    """By the base alone, as imitation learned it."""
    tensors = {key: torch.from_numpy(value) for key, value in seen.items()}
    with torch.no_grad():
        return policy.net.encode(policy.normalizer.observation(tensors))


def made(kind: str) -> OffPolicy:
    if kind == "dsrl":
        return Dsrl(base(), DsrlConfig(**SMALL), seed=0)
    return Proposals(base(), ProposalsConfig(**SMALL, trust_after=0), seed=0)


@pytest.mark.parametrize("kind", ["proposals", "dsrl"])
def test_critics_are_shown_what_the_base_makes_of_a_frame(kind: str) -> None:
    algorithm, seen = made(kind), frames(5)
    expected = condition(base(), seen)
    tensors = {key: torch.from_numpy(value) for key, value in seen.items()}
    with torch.no_grad():
        torch.testing.assert_close(algorithm.policy.encode(tensors), expected)
        torch.testing.assert_close(algorithm.policy.encode(algorithm.policy.encoded(tensors)), expected)
    assert expected.shape == (5, 2 * 8 + 2) and algorithm.policy.feature_size == 18


def test_a_replay_keeps_each_frame_encoded_and_in_its_place() -> None:
    algorithm = made("proposals")
    played = episode(3)
    replay = ReplayBuffer(algorithm.kept, algorithm.chunk, 100, plan=algorithm.plan)
    replay.add(algorithm.keep(played))
    assert set(algorithm.kept.observation) == {"proprio", "images.front/seen", "images.wrist/seen"}
    assert replay.bytes < 1024 * 4 * (2 + 16 + 3 + 1) + 1, "no pictures"
    batch = replay.gather(torch.arange(len(replay)), 0.9, torch.Generator())
    where = [next(t for t in range(T) if np.array_equal(a, played.action[t])) for a in batch.action[:, 0].numpy()]
    assert len(set(where)) == len(replay) > 4
    for row, t in enumerate(where):
        for at, found in ((t, batch.observation), (t + 2, batch.next_observation)):
            alone = condition(base(), {key: value[at : at + 1] for key, value in played.observation.items()})
            one = {key: value[row : row + 1] for key, value in found.items()}
            torch.testing.assert_close(algorithm.policy.encode(one), alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["proposals", "dsrl"])
def test_what_learns_leaves_the_eyes_as_they_are(kind: str) -> None:
    """Else the rows of the replay would be of another encoder than what acts."""
    algorithm, seen = made(kind), frames(6)
    before = condition(base(), seen)
    replay = ReplayBuffer(algorithm.kept, algorithm.chunk, 100, plan=algorithm.plan)
    replay.add(algorithm.keep(episode()))
    generator = torch.Generator().manual_seed(0)
    others = {key: value.clone() for key, value in algorithm.policy.state_dict().items()}
    for _ in range(5):
        algorithm.update(replay.sample(8, 0.9, generator))
    after = algorithm.policy.state_dict()
    assert any(not torch.equal(after[key], value) for key, value in others.items()), "it learns"
    tensors = {key: torch.from_numpy(value) for key, value in seen.items()}
    with torch.no_grad():
        assert torch.equal(algorithm.policy.encode(tensors), before)
    if isinstance(algorithm, Proposals):
        head = next(iter(algorithm.student.net.field.parameters()))
        assert not torch.equal(head, next(iter(base().net.field.parameters()))), "the student's head imitates"


@pytest.mark.parametrize("kind", ["proposals", "dsrl"])
def test_each_camera_matters_and_a_saved_policy_does_the_same(kind: str, tmp_path: Path) -> None:
    algorithm, seen = made(kind), frames(4)
    torch.manual_seed(1)
    for parameter in algorithm.policy.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    algorithm.policy.reset(0)
    chunk = algorithm.policy.act(seen)
    for key in ("images.front", "images.wrist"):
        algorithm.policy.reset(0)
        assert not np.allclose(algorithm.policy.act(seen | {key: seen[key][::-1]}), chunk, atol=1e-3), key
    save_policy(algorithm.policy, tmp_path / "policy")
    loaded = open_policy(tmp_path / "policy")
    loaded.reset(0)
    np.testing.assert_array_equal(loaded.act(seen), chunk)


def test_an_algorithm_without_an_encoder_is_refused() -> None:
    with pytest.raises(BadInput, match=r"got pictures \(images.front, images.wrist\)"):
        Rlpd(base(), RlpdConfig(**SMALL), seed=0)
