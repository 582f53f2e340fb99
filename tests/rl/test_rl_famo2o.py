"""FamO2O: the family's weights and the gradient of its balance by hand, and a balance that differs between states."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from robolearn.core import BadInput
from robolearn.data.replay import ReplayBuffer
from robolearn.rl.algorithms.famo2o import FamO2o
from robolearn.rl.student_settings import FamO2oConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base, windows
from line import GAMMA, PLACES, seen, wandering


def made(**settings: Any) -> FamO2o:
    return FamO2o(base(), FamO2oConfig(**SMALL | settings), seed=0)


def test_the_balance_goes_from_the_smallest_beta_to_the_largest() -> None:
    found = made(beta_min=1.0, beta=9.0).beta(torch.tensor([-1.0, 0.0, 1.0]))
    assert found.tolist() == pytest.approx([1.0, 3.0, 9.0])


def test_windows_weigh_by_the_beta_that_they_are_learned_with() -> None:
    """exp(β(b) A), no more than 5, with b as the generator draws it, from −1 to 1."""
    algorithm = made(beta_min=0.5, beta=8.0, weight_max=5.0)
    advantage = torch.tensor([-0.5, 0.0, 0.25, 9.0, 0.1, -0.1, 0.2, -0.2])
    algorithm.advantage = lambda features, actions: advantage  # type: ignore[method-assign]
    algorithm._balance = lambda features: {}  # type: ignore[method-assign]
    met: list[tuple[torch.Tensor, dict[str, torch.Tensor]]] = []
    algorithm.student.loss = lambda batch, rows, weight, given: met.append((weight, given)) or torch.zeros(())  # type: ignore
    algorithm.student.step = lambda loss: loss  # type: ignore[method-assign]
    batch = windows(8)
    algorithm.generator.manual_seed(5)
    algorithm.improve(algorithm.policy.encode(batch.observation), batch)
    drawn = [2 * u - 1 for u in torch.rand(8, generator=torch.Generator().manual_seed(5)).tolist()]
    expected = [
        min(math.exp(math.exp(math.log(0.5) + (b + 1) / 2 * math.log(16)) * a), 5.0)
        for b, a in zip(drawn, advantage.tolist(), strict=True)
    ]
    ((weight, given),) = met
    assert given["indicator"].tolist() == pytest.approx(drawn) and min(drawn) < 0
    assert weight.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_balance_climbs_the_critics_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """a = ½ + b / 4 and Q = 40 Σ a, b = 0 to begin with: dL_b / db = −¼ / ½, and nothing else has a gradient."""
    algorithm = made()
    net: Any = algorithm.student.net
    algorithm.sampled = lambda net, cond, noise: (0.5 + 0.25 * cond[:, -1:]).expand(-1, 2)  # type: ignore[method-assign]
    monkeypatch.setattr(
        "robolearn.rl.algorithms.famo2o.evaluate", lambda net, seen, actions: 40 * actions.sum(-1)[None]
    )
    features = algorithm.policy.encode(windows(8).observation)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    found = algorithm._balance(features)
    assert float(found["balance"]) == 0.0
    assert net.indicator.net[-1].bias.grad.tolist() == pytest.approx([-0.5])
    changed = {key for key, value in net.state_dict().items() if not torch.equal(value, before[key])}
    assert changed and all(key.startswith("indicator.") for key in changed)
    assert net.field.mlp.first.weight.grad is None
    for _ in range(20):
        found = algorithm._balance(features)
    assert float(found["balance"]) > 0.01


def test_imitation_does_not_move_the_balance() -> None:
    algorithm = made()
    batch, net = windows(8), algorithm.student.net
    rows, given = torch.arange(8), {"indicator": torch.full((8,), 0.5)}
    algorithm.student.imitate(batch, rows)  # with the balance of its own, which is then learned
    assert net.indicator.net[-1].bias.grad is not None  # type: ignore[union-attr, index]
    algorithm.student.step(algorithm.student.loss(batch, rows, None, given))
    assert net.indicator.net[-1].bias.grad is None  # type: ignore[union-attr, index]


@pytest.mark.long
def test_the_balance_is_chosen_for_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where x is above 0 a high balance is worth more, elsewhere a low one."""
    algorithm = made(lr=1e-2)
    algorithm.sampled = lambda net, cond, noise: cond[:, -1:].expand(-1, 2)  # type: ignore[method-assign]
    worth = lambda net, seen, actions: 1.0 + (actions * seen[:, None, :1].sign()).sum(-1)[None]  # noqa: E731
    monkeypatch.setattr("robolearn.rl.algorithms.famo2o.evaluate", worth)
    features = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    for _ in range(150):
        algorithm._balance(features)
    chosen = algorithm.student.net.condition_of(features)[:, -1]
    clear = features[:, 0].abs() > 0.3
    assert (chosen[clear] * features[clear, 0].sign() > 0.5).all()


@pytest.mark.long
def test_it_goes_the_better_way_of_random_steps() -> None:
    """Half of what was recorded went left; the two ends of the family are that, and the better way."""
    line: dict[str, Any] = {"width": 32, "critics": 2, "gamma": GAMMA, "lr": 3e-3, "tau": 0.05, "imitate_lr": 3e-3}
    config = FamO2oConfig(**line, beta_min=0.1, beta=40.0, imitate_average=0.98)
    algorithm = FamO2o(base(horizon=1), config, seed=0)
    buffer = ReplayBuffer(INTERFACE, 1, 5000)
    for episode in wandering(150, 0):
        buffer.add(episode)
    order = torch.Generator().manual_seed(0)
    for _ in range(900):
        algorithm.update(buffer.sample(64, GAMMA, order))
    many = {"proprio": torch.tensor([seen(place) for place in range(PLACES)]).repeat(40, 1).numpy()}
    right = [(algorithm.act(many, explore=False) > 0).mean()]
    for balance in (-1.0, 1.0):
        algorithm.policy.proposer.net.indicator.forward = lambda seen, b=balance: torch.full_like(seen[:, :1], b)
        right.append((algorithm.act(many, explore=False) > 0).mean())
    chosen, all_alike, best = right
    assert chosen > 0.85 and best > 0.85 and all_alike < best - 0.1, right


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"beta_min": 0.0}, {"beta_min": 400.0}, {"beta": 5.0}, {"expectile": 1.0}):
        with pytest.raises(BadInput):
            FamO2oConfig(**wrong)  # type: ignore[arg-type]
