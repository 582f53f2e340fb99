"""A discrete gripper: what a choice commands, which choice a chunk was, the target by hand, a grip that is learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.kinds.gaussian import CLOSE, OPEN, STAY, GripperChoices
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import save_policy
from policies.storage.loading import open_policy
from robolearn.core import ArraySpec, BadInput, Interface, bind_policy
from robolearn.data.replay import PlayedEpisode, ReplayBatch, ReplayBuffer
from robolearn.rl.algorithms.rlpd import Rlpd
from robolearn.rl.off_policy_settings import RlpdConfig

# A panda's opening is up to 0.08 m: from 0.072 m on it is open. The gripper is the middle one of three components.
INTERFACE = Interface(
    {"proprio": ArraySpec((2,), names=("x", "gripper_width"))}, ArraySpec((3,), names=("dx", "gripper", "dy")), 20.0,
    action_kind="tcp_delta", embodiment="panda",
)  # fmt: skip
OPENED = torch.tensor([True, False, False])


def base(interface: Interface = INTERFACE) -> ChunkPolicy:
    torch.manual_seed(0)
    config = FlowConfig(horizon=2, execute=2, network=NetworkConfig(width=16, depth=2))
    return ChunkPolicy(config.build(interface), Normalizer(interface), interface)


def learner(seed: int = 0, **settings: Any) -> Rlpd:
    given: dict[str, Any] = {"width": 32, "batch": 32, "critics": 2, "lr": 1e-3, **settings}
    return Rlpd(base(), RlpdConfig(**given, discrete_gripper=True), seed=seed)


def test_open_is_nine_tenths_of_the_largest_opening() -> None:
    choices = GripperChoices(INTERFACE, 2)
    seen = {"proprio": torch.tensor([[0.0, 0.08], [0.0, 0.0721], [0.0, 0.0719], [1.0, 0.0]])}
    assert choices.is_open(seen).tolist() == [True, True, False, False]
    assert choices.motions == 4


def test_of_the_three_the_two_are_offered_that_mean_something() -> None:
    values = torch.tensor([[1.0, 0.0, 9.0], [9.0, 0.0, 1.0], [9.0, 2.0, 1.0]])
    assert GripperChoices(INTERFACE, 2).choose(values, OPENED).tolist() == [CLOSE, OPEN, STAY]
    assert values[0, 2] == 9.0  # the values are not written over


def test_what_a_choice_commands() -> None:
    """Motions dx, dy of both steps stay where they are; staying keeps an open gripper open and a closed one closed."""
    motions = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).repeat(3, 1)
    found = GripperChoices(INTERFACE, 2).join(motions, torch.tensor([STAY, STAY, OPEN]), OPENED)
    wanted = torch.tensor([[0.1, g, 0.2, 0.3, g, 0.4] for g in (1.0, -1.0, 1.0)])
    torch.testing.assert_close(found, wanted)
    closes = GripperChoices(INTERFACE, 2).join(motions, torch.tensor([CLOSE, OPEN, STAY]), OPENED)
    assert closes[:, 1].tolist() == [-1.0, 1.0, -1.0]


def test_which_choice_a_chunk_was() -> None:
    """By the mean of the steps that were executed; a command that the gripper obeys already is none."""
    chunk = torch.zeros(6, 2, 3)
    chunk[:, :, 1] = torch.tensor([[-1, -1], [1, 1], [1, 1], [-1, -1], [0.3, 0.3], [1.0, -1.0]])
    executed = torch.ones(6, 2, dtype=torch.bool)
    executed[5, 1] = False  # only the first step of the last was
    is_open = torch.tensor([True, True, False, False, False, False])
    assert GripperChoices(INTERFACE, 2).made(chunk, executed, is_open).tolist() == [CLOSE, STAY, OPEN, STAY, STAY, OPEN]


def batch(n: int, grip: float, width: float) -> ReplayBatch:
    rng = torch.Generator().manual_seed(1)
    action = torch.rand(n, 2, 3, generator=rng) * 2 - 1
    action[..., 1] = grip
    marks = torch.ones(n, 2, dtype=torch.bool)
    x = torch.linspace(-1, 1, n)
    return ReplayBatch(
        {"proprio": torch.stack([x, torch.full((n,), width)], 1)}, action, marks, action, marks, torch.full((n,), 0.5),
        torch.full((n,), 0.5), torch.full((n,), 0.9), {"proprio": torch.stack([x + 3, torch.full((n,), 0.01)], 1)},
        torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool),
    )  # fmt: skip


@pytest.mark.parametrize(("width", "changed"), [(0.08, 1.0), (0.01, 0.0)])
def test_the_target_by_hand(width: float, changed: float) -> None:
    """Closing costs 0.02 where the gripper is open. The live critic chooses, the slow one judges."""
    algorithm = learner()
    gripper, data = algorithm.gripper, batch(8, -1.0, width)
    assert gripper is not None
    for net, last in ((gripper.net, [5.0, 0.0, 1.0]), (gripper.target, [7.0, 3.0, 2.0])):
        for parameter in net.parameters():
            parameter.data.zero_()
        net.biases[-1].data[:] = torch.tensor(last)
    # Next the gripper is closed: of stay 0 and open 1 the live one takes open, which the slow one gives 2.
    y = 0.5 - 0.02 * changed + 0.9 * 2.0
    found = gripper.fit(*(algorithm.policy.encode(o) for o in (data.observation, data.next_observation)), data)
    said = 5.0 if changed else 0.0  # of close, or of stay
    assert float(found["gripper_loss"]) == pytest.approx((said - y) ** 2, rel=1e-5)
    assert float(found["gripper_changes"]) == changed
    moved = gripper.target.biases[-1].flatten() - torch.tensor([7.0, 3.0, 2.0])
    wanted = 0.005 * (gripper.net.biases[-1].detach().flatten() - torch.tensor([7.0, 3.0, 2.0]))
    torch.testing.assert_close(moved, wanted, atol=1e-6, rtol=1e-3)


@pytest.mark.long
def test_a_grip_is_learned_that_pays_and_none_that_does_not() -> None:
    """An open gripper that closes at x > 0 succeeds, elsewhere closing brings nothing and costs."""
    algorithm, rng = learner(lr=3e-3), np.random.default_rng(0)
    buffer = ReplayBuffer(INTERFACE, 2, 5000)
    for _ in range(300):
        x, grip = rng.uniform(-1, 1), rng.choice([-1.0, 1.0])
        action = rng.uniform(-1, 1, (2, 3)).astype(np.float32)
        action[:, 1] = grip
        good = bool(x > 0 and grip < 0)
        seen = np.array([[x, 0.08]] * 2 + [[x, 0.01 if grip < 0 else 0.08]], np.float32)
        buffer.add(
            PlayedEpisode({"proprio": seen}, action, np.array([0, good], np.float32), np.zeros(2, bool), True, good)
        )
    draws = torch.Generator().manual_seed(0)
    for _ in range(400):
        algorithm.update(buffer.sample(64, 0.9, draws))
    seen = {"proprio": np.array([[x, 0.08] for x in (-0.8, -0.4, 0.4, 0.8)], np.float32)}
    for explore in (True, False):
        assert algorithm.act(seen, explore=explore)[:, :, 1].tolist() == [[1, 1], [1, 1], [-1, -1], [-1, -1]]


def test_it_resumes_and_is_exported(tmp_path: Path) -> None:
    first, second, data = learner(0), learner(7), batch(32, 1.0, 0.01)
    for _ in range(4):
        first.update(data)
    second.load_state(*first.state())
    for algorithm in (first, second):
        for _ in range(3):
            algorithm.update(replace(data, reward=data.reward + 1))
    for key, value in first.state()[0].items():
        assert torch.equal(value, second.state()[0][key]), key
    assert any(key.startswith("gripper_target") for key in first.state()[0])
    other = learner(9)
    other.load_acting(first.acting())
    loaded = open_policy(save_policy(first.policy, tmp_path / "policy"))
    bind_policy(loaded, INTERFACE, what="test")
    rng = np.random.default_rng(0)
    seen = {"proprio": np.stack([rng.uniform(-1, 1, 20), rng.uniform(0, 0.08, 20)], 1).astype(np.float32)}
    np.testing.assert_array_equal(loaded.act(seen), first.policy.act(seen))
    np.testing.assert_array_equal(other.policy.act(seen), first.policy.act(seen))


def test_a_world_without_a_gripper_is_refused() -> None:
    for wrong in ({"embodiment": "none"}, {"action": ArraySpec((3,), names=("dx", "dy", "dz"))},
                  {"observation": {"proprio": ArraySpec((2,))}}):  # fmt: skip
        with pytest.raises(BadInput, match="--discrete-gripper"):
            Rlpd(base(replace(INTERFACE, **wrong)), RlpdConfig(discrete_gripper=True), seed=0)
    with pytest.raises(BadInput, match="gripper-penalty"):
        RlpdConfig(gripper_penalty=-1.0)
