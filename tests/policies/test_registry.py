"""A variant is one config and one line in the table of its sort: it is then found by commands and checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from policies import registry, settings
from policies.kinds.chunk_net import ChunkNet
from policies.kinds.gaussian import NoiseSteeredConfig
from policies.networks.encoder_settings import ENCODERS, EncoderConfig, EncoderKind, usages
from policies.normalize import Normalizer
from policies.policy import Backend, ChunkPolicy, ProposerPolicy, TorchPolicy
from policies.settings import POLICIES, FlowConfig, NetworkConfig, PolicyConfig
from policies.storage.backends import BACKENDS, BackendConfig
from policies.storage.checkpoint import load_chunk_policy, load_policy, save_policy
from policies.storage.loading import open_policy
from policies.wrappers.best_of_n import BestOfNConfig
from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface

INTERFACE = Interface({"proprio": ArraySpec((2,))}, ArraySpec((3,)), 20.0, "none", "none")
SMALL = NetworkConfig(width=8, depth=1)
OBSERVATION = {"proprio": np.ones((4, 2), np.float32)}


@dataclass(frozen=True)
class StillConfig(PolicyConfig):
    """A policy that rests."""

    name: ClassVar[str] = "still"
    page: ClassVar[str] = f"{__name__}:Still"

    offset: float = 0.25
    """Every action."""


class Still(ChunkNet):
    def sample(self, cond: torch.Tensor, x0: torch.Tensor) -> torch.Tensor:
        return cond.new_full((len(cond), self.config.horizon, self.action_dim), self.config.offset)


def flow() -> ChunkPolicy:
    return ChunkPolicy(FlowConfig(network=SMALL).build(INTERFACE), Normalizer(INTERFACE), INTERFACE).eval()


@pytest.mark.parametrize("command", ["train", "distill"])
def test_a_kind_of_policy_is_one_config_and_one_line(command: str, capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(POLICIES, StillConfig.name, StillConfig)
    with pytest.raises(SystemExit):
        main([command, "--policy", "still", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--offset FLOAT" in shown and f"available: {', '.join(POLICIES)})" in shown
    policy = ChunkPolicy(StillConfig(offset=0.5, execute=2).build(INTERFACE), Normalizer(INTERFACE), INTERFACE)
    loaded = load_chunk_policy(save_policy(policy, tmp_path))
    assert loaded.config == StillConfig(offset=0.5, execute=2)
    assert (loaded.act(OBSERVATION) == 0.5).all()


def test_a_kind_that_is_not_there_is_answered_by_those_that_are(capsys) -> None:
    assert main(["train", "--policy", "still", "--data", "nowhere", "--out", "nowhere"]) == 2
    assert f"available: {', '.join(POLICIES)}" in " ".join(capsys.readouterr().err.split())


@dataclass(frozen=True)
class HalvedConfig:
    """Settings of `Halved`."""

    name: ClassVar[str] = "halved"
    takes_proposer: ClassVar[bool] = True

    share: float = 0.5

    def build(self, interface: Interface, proposer: ChunkPolicy) -> Halved:
        return Halved(proposer, self)


class Halved(ProposerPolicy):
    def __init__(self, proposer: ChunkPolicy, config: HalvedConfig) -> None:
        super().__init__(proposer, proposer.net.noise_shape)
        self.config = config

    def decide(self, observation, noise: torch.Tensor) -> torch.Tensor:
        return self.config.share * self.proposer.decide(observation, noise)


def test_a_wrapper_is_one_config_and_one_line(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(registry.RL_POLICIES, HalvedConfig.name, HalvedConfig)
    base = flow()
    loaded = load_policy(save_policy(HalvedConfig(share=0.25).build(INTERFACE, base), tmp_path))
    assert loaded.config == HalvedConfig(share=0.25)
    np.testing.assert_array_equal(loaded.act(OBSERVATION), np.float32(0.25) * base.act(OBSERVATION))


@pytest.mark.parametrize(("config", "stored"), [(BestOfNConfig(width=8), "chosen"), (NoiseSteeredConfig(), "steered")])
def test_kinds_of_earlier_checkpoints_are_read(config, stored: str, tmp_path: Path) -> None:
    policy = config.build(INTERFACE, flow()).eval()
    file = save_policy(policy, tmp_path) / "config.json"
    content = json.loads(file.read_text())
    assert content["kind"] == config.name
    file.write_text(json.dumps(content | {"kind": stored}))
    np.testing.assert_array_equal(load_policy(tmp_path).act(OBSERVATION), policy.act(OBSERVATION))


def test_only_a_policy_that_denoises_is_a_proposer(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(POLICIES, StillConfig.name, StillConfig)
    file = save_policy(BestOfNConfig(width=8).build(INTERFACE, flow()), tmp_path) / "config.json"
    content = json.loads(file.read_text())
    content["proposer"] = {"kind": "still", "settings": {}}
    file.write_text(json.dumps(content))
    with pytest.raises(BadInput, match=f"available: {', '.join(settings.denoising_kinds())}"):
        load_policy(tmp_path)


class LumaKind(EncoderKind):
    """Grey pictures, averaged."""

    name, any_channels = "luma", True

    def build(self, channels: int, size: tuple[int, int], features: int, config: EncoderConfig) -> torch.nn.Module:
        return Luma(features)


class Luma(torch.nn.Module):
    pooling = "mean"

    def __init__(self, features: int) -> None:
        super().__init__()
        self.head = torch.nn.Linear(1, features)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(image.mean((1, 2, 3))[:, None])


def test_an_encoder_is_one_kind_and_one_line(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(ENCODERS, LumaKind.name, LumaKind())
    with pytest.raises(SystemExit):
        main(["train", "--encoder", "luma", "--help"])
    assert f"available: {', '.join(usages())})" in " ".join(capsys.readouterr().out.replace("│", " ").split())
    interface = Interface({"images.top": ArraySpec((16, 16, 3), "uint8")}, ArraySpec((3,)), 20.0, "none", "none")
    config = FlowConfig(network=replace(SMALL, encoder=EncoderConfig(kind="luma")))
    policy = ChunkPolicy(registry.fresh_net(config, interface), Normalizer(interface), interface).eval()
    seen = {"images.top": np.full((2, 16, 16, 3), 100, np.uint8)}
    np.testing.assert_array_equal(load_policy(save_policy(policy, tmp_path)).act(seen), policy.act(seen))


class NoughtBackend(BackendConfig):
    """No action, whatever is observed."""

    name = "nought"

    def build(self, policy: TorchPolicy) -> Backend:
        size = policy.interface.action.size
        return lambda observation, noise: np.zeros((len(noise), policy.execute_steps, size), np.float32)


@pytest.mark.parametrize("command", ["evaluate", "deploy"])
def test_a_backend_is_one_config_and_one_line(command: str, capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(BACKENDS, NoughtBackend.name, NoughtBackend)
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "available: torch, trace, compile, onnx, nought)" in " ".join(
        capsys.readouterr().out.replace("│", " ").split()
    )
    policy = open_policy(save_policy(flow(), tmp_path), backend="nought")
    assert not policy.act(OBSERVATION).any()
