"""Imitation: learning, the schedule by hand, and continuation bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy
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


def test_the_policy_of_another_arm_is_no_beginning():
    policy = trainer(config()).policy()
    seen = {"proprio": ArraySpec((4,))}  # of another size, too: the arm is the reason
    policy.interface = replace(INTERFACE, embodiment="ur5e", observation=seen)
    with pytest.raises(BadInput) as said:
        trainer(config()).begin_from(policy)
    arms = f"the policy was made for ur5e, this is {INTERFACE.embodiment}"
    mends = f"`robolearn train` on data of {INTERFACE.embodiment} makes one for it"
    assert str(said.value) == f"--from, the data: {arms}: one arm, one policy. {mends}"


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "policy",
    [
        FlowConfig(network=NETWORK),
        FlowConfig(kind="shortcut", network=NETWORK),
        DiffusionConfig(network=NETWORK, steps=5),
    ],
    ids=["rectified", "shortcut", "diffusion"],
)
def test_continuation_is_bit_identical(policy, precision):
    settings = config(policy=policy, precision=precision)
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


@pytest.mark.long
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


def test_the_averaged_weights_are_exported(tmp_path):
    """w̄ ← β_n w̄ + (1 − β_n) w with β_n = min(β, (1 + n)/(10 + n)), kept here beside the training."""
    learner = trainer(config(steps=6, steps_per_iteration=1, lr=0.03, warmup=1, ema=0.9))
    average = {key: value.clone() for key, value in learner.net.named_parameters()}
    for n in range(1, 7):
        learner.iterate(n - 1)
        beta = min(0.9, (1 + n) / (10 + n))
        for key, value in learner.net.named_parameters():
            average[key] = beta * average[key] + (1 - beta) * value.detach()
    learner.export(tmp_path / "policy")
    exported = dict(load_policy(tmp_path / "policy").net.named_parameters())
    for key, value in average.items():
        assert torch.allclose(exported[key], value, atol=1e-6), key
    assert max((exported[key] - value).abs().max() for key, value in learner.net.named_parameters()) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rectified", "shortcut"])
def test_bfloat16_learns_as_float32_does(kind, tmp_path):
    def learned(precision):
        policy = FlowConfig(kind=kind, network=NETWORK)
        settings = config(policy=policy, precision=precision, steps=400, steps_per_iteration=50, batch=128)
        made = trainer(settings, n=2000, validation=Toy(200, seed=1))
        return made, [made.iterate(i) for i in range(made.config.iterations)]

    (mixed, rows), (_, exact) = learned("bfloat16"), learned("float32")
    assert exact[-1]["validation_loss"] < 0.7 * exact[0]["validation_loss"]
    for key in ("loss", "validation_loss"):
        assert rows[-1][key] == pytest.approx(exact[-1][key], rel=0.03), key
        assert rows[-1][key] != exact[-1][key]
    # It is the products that are rounded: to 8 bits, not to 24.
    assert 1e-5 < abs(rows[0]["loss"] / exact[0]["loss"] - 1) < 2**-7
    assert all(tensor.dtype == torch.float32 for tensor in mixed.net.state_dict().values())
    assert {tensor.dtype for key, tensor in mixed.state()[0].items() if "step" not in key} == {torch.float32}
    mixed.export(tmp_path / "policy")
    assert {tensor.dtype for tensor in load_file(tmp_path / "policy" / "model.safetensors").values()} == {torch.float32}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_loss_alone_is_computed_in_what_was_asked_for(precision, monkeypatch):
    learner = trainer(config(precision=precision), validation=Toy(50, seed=1))
    seen = []
    for module, name in ((learner.net, "loss"), (learner.ema.module, "loss"), (learner.optimizer, "step")):
        once = getattr(module, name)

        def watched(*args, once=once, module=module, **more):
            seen.append((module, torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")))
            return once(*args, **more)

        monkeypatch.setattr(module, name, watched)
    with torch.autocast("cpu", torch.float16):  # whatever surrounds it
        learner.iterate(0)
    assert {dtype for module, dtype in seen if module is learner.net} == {precision == "bfloat16" and torch.bfloat16}
    seen.clear()
    learner.iterate(1)
    assert {dtype for module, dtype in seen if module is not learner.net} == {False}


def test_validation_is_float32_in_any_precision():
    learner = trainer(config(precision="bfloat16"), validation=Toy(50, seed=1))
    said = learner.iterate(0)["validation_loss"]
    judge = trainer(config(), validation=Toy(50, seed=1))
    judge.load_state(*learner.state())
    assert judge._validate()["validation_loss"] == said


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


def test_vectors_are_normalised_by_what_was_asked_for():
    with pytest.raises(BadInput, match="no 'q01'"):
        trainer(config(normalise="quantiles"))
    found = STATISTICS["proprio"] | {"q01": [-1.0, -1.0, 2.0], "q99": [1.0, 3.0, 2.0]}
    statistics = STATISTICS | {"proprio": found}
    normal = ImitationTrainer(config(normalise="quantiles"), Toy(9), INTERFACE, statistics).normalizer
    seen = normal.observation({"proprio": torch.tensor([[1.0, 1.0, 2.0]])})["proprio"]
    torch.testing.assert_close(seen, torch.tensor([[2.326, 0.0, 2.0]]))
    normal = ImitationTrainer(config(), Toy(9), INTERFACE, statistics).normalizer
    torch.testing.assert_close(normal.observation({"proprio": torch.ones(1, 3)})["proprio"], torch.ones(1, 3))
    with pytest.raises(BadInput, match="deviation, quantiles"):
        config(normalise="median")


def test_what_cannot_be_trained():
    with pytest.raises(BadInput, match="windows"):
        trainer(config(), n=0)
    with pytest.raises(BadInput, match="steps"):
        config(steps=0)
    with pytest.raises(BadInput, match="got float16; available: float32, bfloat16"):
        config(precision="float16")
    learner = trainer(config())
    learner.windows.action[:] = torch.nan
    with pytest.raises(NonFinite, match="iteration 0"):
        learner.iterate(0)


class Alone:
    """One of `count` processes that work one after the other: it hands over what it computed, and gets the sums."""

    def __init__(self, rank: int, count: int, sums: list[torch.Tensor] | None) -> None:
        self.rank, self.count, self._sums = rank, count, sums
        self.own: list[torch.Tensor] = []

    def sum(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self.own = [tensor.clone() for tensor in tensors]
        return tensors if self._sums is None else self._sums


POLICIES = [
    FlowConfig(network=NETWORK),
    FlowConfig(network=NETWORK, mask_padding=False),
    FlowConfig(kind="shortcut", network=NETWORK),
    DiffusionConfig(network=NETWORK, steps=5),
]


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES, ids=["rectified", "unmasked", "shortcut", "diffusion"])
@pytest.mark.parametrize("pieces", [3, 32])
def test_accumulated_pieces_of_a_batch_are_the_whole_batch(policy: FlowConfig | DiffusionConfig, pieces: int) -> None:
    """The last batch of an epoch (100 windows, 32 a batch) is shorter than the number of pieces: it has 4."""
    whole = trainer(config(policy=policy, lr=1e-3))
    parts = trainer(config(policy=policy, lr=1e-3, accumulate=pieces))
    for i in range(2):
        expected, found = whole.iterate(i), parts.iterate(i)
        assert found == pytest.approx(expected, rel=1e-5)
    for a, b in zip(whole.net.parameters(), parts.net.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    with pytest.raises(BadInput, match="got 33, expected at most the 32 windows"):
        config(accumulate=33)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES, ids=["rectified", "unmasked", "shortcut", "diffusion"])
@pytest.mark.parametrize("count", [2, 14])
def test_shares_of_processes_sum_to_the_gradient_of_the_batch(policy: FlowConfig | DiffusionConfig, count: int) -> None:
    """12 windows: among 14 processes some have none."""
    index = torch.arange(20, 32)
    whole = trainer(config(policy=policy))
    whole._generator.manual_seed(1)
    expected = whole._gradient(index)
    shares: list[list[torch.Tensor]] = []
    for rank in range(count):
        one = trainer(config(policy=policy, accumulate=2))
        one.together = Alone(rank, count, None)
        one._generator.manual_seed(1)
        one._gradient(index)
        shares.append(one.together.own)
    last = trainer(config(policy=policy, accumulate=2))
    last.together = Alone(0, count, [sum(tensors) for tensors in zip(*shares, strict=True)])  # type: ignore[misc]
    last._generator.manual_seed(1)
    found = last._gradient(index)
    assert {k: float(v) for k, v in found.items()} == pytest.approx(
        {k: float(v) for k, v in expected.items()}, rel=1e-5
    )
    for a, b in zip(whole.net.parameters(), last.net.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


def test_an_accumulated_run_is_continued_exactly() -> None:
    settings = config(accumulate=3)
    through, first = trainer(settings), trainer(settings)
    for i in range(4):
        through.iterate(i)
    for i in range(2):
        first.iterate(i)
    then = trainer(settings)
    then.load_state(*first.state())
    for i in range(2, 4):
        then.iterate(i)
    for a, b in zip(through.net.parameters(), then.net.parameters(), strict=True):
        assert torch.equal(a, b)
