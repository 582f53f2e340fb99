"""Another algorithm is a config, a page and a line in the table; then the command line, help and runner have it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from robolearn.cli.main import parse
from robolearn.cli.registry import find
from robolearn.core import BadInput
from robolearn.rl.actors import ChainStats
from robolearn.rl.algorithms import ALGORITHMS
from robolearn.rl.algorithms.on_policy import ActorCritic
from robolearn.rl.algorithms.rlpd import Rlpd
from robolearn.rl.off_policy_settings import RlpdConfig
from robolearn.rl.runner import Runner
from robolearn.rl.settings import ActorCriticConfig, NoiseConfig


@dataclass(frozen=True, kw_only=True)
class MineConfig(ActorCriticConfig):
    """L = −w E[ log π A ]"""

    title: ClassVar[str] = "Mine"
    my_weight: float = 1.0
    """w."""

    def page_class(self) -> Any:
        return Mine


class Mine(ActorCritic):
    config: MineConfig

    def surrogate(self, old: ChainStats, advantage: Tensor) -> Callable[[ChainStats, slice], Tensor]:
        return lambda now, part: -self.config.my_weight * (now.joint() * advantage[part]).mean()


@dataclass(frozen=True, kw_only=True)
class MineTooConfig(RlpdConfig):
    title: ClassVar[str] = "Mine, off-policy"
    my_share: float = 0.5
    """A flag of its own."""

    def page_class(self) -> Any:
        return Rlpd


@pytest.fixture(autouse=True)
def _in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "mine", MineConfig)
    monkeypatch.setitem(ALGORITHMS, "mine-too", MineTooConfig)


def _parse(*words: str) -> Any:
    entry, rest = find(list(words))
    return parse(entry, rest)


@pytest.mark.long
@pytest.mark.parametrize("command", [["finetune", "--policy", "p", "--out", "o"], ["quickstart"], ["benchmark", "rl"]])
def test_the_command_line_has_it(command: list[str]):
    made = _parse(*command, "--algo", "mine", "--my-weight", "2", "--gamma", "0.9")
    assert made.settings == MineConfig(**{**vars(made.settings), "my_weight": 2.0, "gamma": 0.9})
    with pytest.raises(BadInput, match=r"available.*mine"):
        _parse(*command, "--algo", "theirs")
    if command == ["quickstart"]:  # the flags of its networks have the names of a critic's
        with pytest.raises(BadInput, match="mine-too"):
            _parse(*command, "--algo", "mine-too")
        return
    stored = _parse(*command, "--algo", "mine-too", "--my-share", "0.25", "--worlds", "3").settings
    assert type(stored.algorithm) is MineTooConfig and (stored.algorithm.my_share, stored.num_envs) == (0.25, 3)


def test_the_loop_with_a_human_has_it():
    made = _parse("hil", "learner", "--policy", "p", "--out", "o", "--algo", "mine-too", "--my-share", "0.25")
    assert type(made.settings) is MineTooConfig
    assert made.settings.my_share == 0.25


@pytest.mark.parametrize(
    ("command", "algo", "flag"), [("finetune", "mine", "--my-weight"), ("hil learner", "mine-too", "--my-share")]
)
def test_the_help_has_it(command: str, algo: str, flag: str, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit):
        _parse(*command.split(), "--algo", algo, "--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert flag in shown
    assert f", {algo}" in shown


def test_it_learns(point: Any, make_policy: Any, tmp_path: Path):
    world = point(8)
    policy = make_policy(world.interface, horizon=2, execute=2)
    config = MineConfig(num_envs=8, critic_warmup=0, noise=NoiseConfig(sigma_max=0.2))
    runner = Runner(policy, world, config, 2000, 0)
    before = torch.cat([p.detach().flatten().clone() for p in policy.net.parameters()])
    row = runner.iterate(0)
    assert row["env_steps"] > 0
    assert not torch.equal(before, torch.cat([p.detach().flatten() for p in policy.net.parameters()]))


def test_the_table_loads_no_torch():
    code = "import sys, robolearn.rl.algorithms, robolearn.presets; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
