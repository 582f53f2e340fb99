"""Imitation: learning, the schedule by hand, and continuation bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from policies.checkpoint import load_policy
from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, BadInput, Interface, NonFinite
from robolearn.train.imitation import ImitationConfig, ImitationTrainer, learning_rate, split_episodes

INTERFACE = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=20.0)
STATISTICS = {
    "proprio": {"mean": [0.0] * 3, "std": [1.0] * 3},
    "action": {"min": [-0.5, -0.5], "max": [0.5, 0.5]},
}
NETWORK = NetworkConfig(width=32, depth=2)


@dataclass
class Batch:
    observation: dict[str, torch.Tensor]
    action: torch.Tensor
    action_is_pad: torch.Tensor


class Toy:
    """The action is half the tanh of the first two components of the observation, throughout the chunk."""

    def __init__(self, n: int, seed: int = 0) -> None:
        seen = torch.randn(n, 1, 3, generator=torch.Generator().manual_seed(seed))
        self.observation, self.action = seen, (0.5 * seen[..., :2].tanh()).repeat(1, 4, 1)
        self.is_pad = torch.arange(4) >= torch.randint(1, 5, (n, 1), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.action)

    def order(self, seed: int, epoch: int) -> torch.Tensor:
        return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(len(self)))

    def gather(self, index: torch.Tensor) -> Batch:
        return Batch({"proprio": self.observation[index]}, self.action[index], self.is_pad[index])


def config(**settings) -> ImitationConfig:
    base = ImitationConfig(
        policy=FlowConfig(network=NETWORK), steps=100, steps_per_iteration=5, batch=32, warmup=10, lr=3e-3
    )
    return replace(base, **settings)


def trainer(settings: ImitationConfig, n: int = 100, **more) -> ImitationTrainer:
    return ImitationTrainer(settings, Toy(n), INTERFACE, STATISTICS, **more)


@pytest.mark.parametrize(
    "policy",
    [
        FlowConfig(network=NETWORK),
        FlowConfig(kind="shortcut", network=NETWORK),
        DiffusionConfig(network=NETWORK, steps=5),
    ],
)
def test_continuation_is_bit_identical(policy):
    settings = config(policy=policy)
    whole = trainer(settings)
    metrics = [whole.iterate(i) for i in range(20)]
    first = trainer(settings)
    for i in range(10):
        first.iterate(i)
    tensors, meta = first.state()
    for i in range(10, 12):  # what happens after the state was taken must not reach into it
        first.iterate(i)
    torch.manual_seed(99)
    second = trainer(settings)
    second.load_state(tensors, meta)
    assert [second.iterate(i) for i in range(10, 20)] == metrics[10:]
    a, b = whole.state(), second.state()
    assert a[1] == b[1]
    assert a[0].keys() == b[0].keys()
    assert all(torch.equal(a[0][key], b[0][key]) for key in a[0])


def test_it_learns_exports_and_validates(tmp_path):
    learner = trainer(config(steps=400, steps_per_iteration=50, batch=128), n=2000, validation=Toy(200, seed=1))
    history = [learner.iterate(i) for i in range(learner.config.iterations)]
    assert history[-1]["validation_loss"] < 0.6 * history[0]["validation_loss"]
    learner.export(tmp_path / "policy")
    policy = load_policy(tmp_path / "policy")
    seen = torch.randn(200, 3, generator=torch.Generator().manual_seed(5)).numpy()
    wanted = 0.5 * np.tanh(seen[:, None, :2]).repeat(4, axis=1)
    assert np.abs(policy.act({"proprio": seen}) - wanted).mean() < 0.1
    assert {"loss", "lr", "grad_norm", "epoch", "validation_loss"} <= history[0].keys()


def test_global_randomness_is_neither_used_nor_disturbed():
    before = torch.get_rng_state()
    learner = trainer(config())
    learner.iterate(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_window_comes_once_per_epoch():
    learner = trainer(config(batch=32), n=100)
    epoch = torch.cat([learner._indices(step) for step in range(4)])
    assert sorted(epoch.tolist()) == list(range(100))
    again = torch.cat([learner._indices(step) for step in range(4, 8)])
    assert sorted(again.tolist()) == list(range(100))
    assert not torch.equal(epoch, again)


def test_learning_rate_by_hand():
    c = config(lr=1.0, lr_final=0.2, warmup=10, steps=110)
    assert learning_rate(c, 0) == pytest.approx(0.1)
    assert learning_rate(c, 9) == pytest.approx(1.0)
    assert learning_rate(c, 60) == pytest.approx(0.6)  # half way down the cosine
    assert learning_rate(c, 110) == learning_rate(c, 500) == pytest.approx(0.2)
    assert config(steps=101, steps_per_iteration=50).iterations == 3


def test_split_by_episodes():
    train, held = split_episodes(20, config(validation=0.25))
    assert len(held) == 5
    assert sorted(train + held) == list(range(20))
    assert split_episodes(1, config(validation=0.9)) == ([0], [])


def test_what_cannot_be_trained():
    with pytest.raises(BadInput, match="windows"):
        trainer(config(), n=0)
    with pytest.raises(BadInput, match="steps"):
        config(steps=0)
    learner = trainer(config())
    learner.windows.action[:] = torch.nan
    with pytest.raises(NonFinite, match="iteration 0"):
        learner.iterate(0)
