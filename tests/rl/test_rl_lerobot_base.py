"""A sampler of another maker as the base of RL: a double of LeRobot's policy, whose arithmetic is done by hand.

c = (x − 1) / 2 (LeRobot's normalisation),  chunk = x_0 + w Σ c,  action = chunk / 4
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from policies.kinds.gaussian import NoiseSteeredConfig, NoiseSteeredPolicy
from policies.storage import lerobot_base
from policies.storage.backends import use_backend
from policies.storage.checkpoint import load_policy, save_policy
from policies.storage.lerobot_base import open_base
from policies.storage.lerobot_files import PolicyFiles
from policies.storage.loading import load_base
from policies.storage.onnx_export import export_onnx
from policies.wrappers.best_of_n import BestOfNConfig, BestOfNPolicy
from robolearn.cli.hub.remote import content_of
from robolearn.core import BadInput
from robolearn.io.hashes import sha256_weights
from robolearn.rl.algorithms.dsrl import Dsrl
from robolearn.rl.algorithms.iql import Iql
from robolearn.rl.algorithms.proposals import Proposals
from robolearn.rl.off_policy_settings import DsrlConfig, ProposalsConfig
from robolearn.rl.student_settings import FamO2oConfig, IqlConfig, RecapConfig, RiqlConfig, UniO4Config

sys.path.insert(0, str(Path(__file__).parent))
from corridor import SMALL, windows

WHOLE = {"control_hz": 20.0, "embodiment": "panda", "action_kind": "tcp_delta", "action": {"names": ["dx"]}}
OPENED: list[Theirs] = []  # what stands for LeRobot's networks, the newest last
SEEN = torch.tensor([[1.0, 3.0], [5.0, -1.0]])


class Sampler(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.1))

    def conditional_sample(self, batch_size: int, global_cond: Tensor, noise: Tensor) -> Tensor:
        assert batch_size == len(noise)
        return noise + self.w * global_cond.sum(1)[:, None, None]


class Theirs(nn.Module):
    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.diffusion = Sampler()
        feature, action = (SimpleNamespace(shape=(n,), type=SimpleNamespace(name="STATE")) for n in (2, 1))
        values = {"horizon": 4, "n_action_steps": 2, "n_obs_steps": 1, "noise_scheduler_type": "DDIM"} | config
        self.config = SimpleNamespace(
            input_features={"observation.state": feature}, output_features={"action": action}, image_features={},
            env_state_feature=None, **values,
        )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of a policy, which the double answers for."""
    made = tmp_path / "theirs"
    made.mkdir()
    stored = {"mean": torch.tensor([1.0, 1.0]), "std": torch.tensor([4.0, 4.0])}
    numbers = {f"observation.state.{name}": value for name, value in stored.items()}
    numbers |= {"action.min": torch.tensor([-1.0]), "action.max": torch.tensor([1.0])}
    save_file(numbers, made / "stats.safetensors")
    steps = [{"registry_name": "normalizer_processor", "state_file": "stats.safetensors"}]
    (made / "policy_preprocessor.json").write_text(json.dumps({"steps": steps}))
    (made / "robolearn.json").write_text(json.dumps(WHOLE))

    def read(path: str) -> PolicyFiles:
        config = Path(path) / "config.json"
        settings = json.loads(config.read_text()) if config.exists() else {}
        told = json.loads((Path(path) / "robolearn.json").read_text())

        def before(batch: dict[str, Tensor]) -> dict[str, Tensor]:
            return {key: (value - 1.0) / 2.0 for key, value in batch.items()}

        OPENED.append(Theirs(**settings))
        return PolicyFiles(Path(path), OPENED[-1], before, lambda action: action / 4.0, told)

    monkeypatch.setattr(lerobot_base, "read_policy", read)
    return made


def test_noise_goes_through_its_own_normalisation_and_sampler(folder: Path) -> None:
    """Σ c = 1 and 1, so a chunk of noise 0.5 is (0.5 + 0.1) / 4; 80 / 4 is cut to 1."""
    base = open_base(str(folder))
    assert base.net.noise_shape == (4, 1) and base.execute_steps == 2 and base.interface.control_hz == 20.0
    normal = base.normalizer.observation({"proprio": SEEN})
    noise = torch.tensor([[0.5], [0.5], [80.0], [-80.0]]).expand(2, 4, 1)
    chunk = base.normalizer.action_back(base.net.sample(base.net.encode(normal), noise))
    torch.testing.assert_close(chunk[:, :, 0], torch.tensor([[0.15, 0.15, 1.0, -1.0]]).expand(2, 4))


def test_the_steered_policy_begins_at_m_tanh_mu_and_sees_standardised_vectors(folder: Path) -> None:
    """M = 0.3, tanh μ = 0.5: (0.15 + 0.1) / 4. By mean 1 and deviation 4 the actor sees (x − 1) / 4."""
    policy = NoiseSteeredPolicy(open_base(str(folder)), NoiseSteeredConfig(execute=2, width=8, magnitude=0.3))
    with torch.no_grad():
        policy.actor.net.last.weight.zero_()
        policy.actor.net.last.bias.fill_(math.atanh(0.5))
    loaded = load_policy(save_policy(policy, folder.parent / "steered"))
    np.testing.assert_allclose(loaded.act({"proprio": SEEN.numpy()}), np.full((2, 2, 1), 0.0625), rtol=1e-6)
    assert isinstance(loaded, NoiseSteeredPolicy)
    torch.testing.assert_close(loaded.encode({"proprio": SEEN}), torch.tensor([[0.0, 0.5], [1.0, -0.5]]))


def test_its_proposals_are_of_the_noise_that_is_drawn(folder: Path) -> None:
    policy = BestOfNPolicy(open_base(str(folder)), BestOfNConfig(width=8, proposals=3, tempo=0.0))
    noise = torch.arange(2 * 3 * 4, dtype=torch.float32).view(2, 3, 4, 1) / 10
    found = policy.propose({"proprio": SEEN}, noise)
    torch.testing.assert_close(found, ((noise[:, :, :2, 0] + 0.1) / 4).clamp(-1, 1))


def test_no_algorithm_touches_or_stores_its_weights(folder: Path) -> None:
    base = open_base(str(folder))
    before = sha256_weights(OPENED[-1])
    for made in (
        Dsrl(base, DsrlConfig(**SMALL), seed=0),
        Iql(base, IqlConfig(**SMALL, proposals=3), seed=0),
        Proposals(base, ProposalsConfig(**SMALL, trust_after=0), seed=0),
    ):
        acting = {key: value.clone() for key, value in made.policy.state_dict().items()}
        for _ in range(3):
            made.update(windows())
        chunk = made.act({"proprio": SEEN.numpy()}, explore=True)
        assert chunk.shape == (2, 2, 1) and np.abs(chunk).max() <= 1
        learned = {id(p) for adam in made.optimizers().values() for group in adam.param_groups for p in group["params"]}
        assert id(OPENED[-1].diffusion.w) not in learned and "student" not in made.optimizers()
        assert not any(key.endswith(".w") for key in acting | made.state()[0])
        assert any(not torch.equal(value, acting[key]) for key, value in made.policy.state_dict().items())
        tensors, meta = made.state()
        made.load_state(tensors, meta)
        assert sha256_weights(OPENED[-1]) == before


def test_its_weights_go_where_the_policy_goes(folder: Path) -> None:
    base = open_base(str(folder)).to(torch.float64)
    assert OPENED[-1].diffusion.w.dtype == torch.float64 and not list(base.parameters())


def test_a_checkpoint_names_the_files_that_it_stands_on(folder: Path) -> None:
    policy = NoiseSteeredPolicy(open_base(str(folder)), NoiseSteeredConfig(execute=2, width=8))
    made = save_policy(policy, folder.parent / "steered")
    stated = json.loads((made / "config.json").read_text())["proposer"]
    assert stated["kind"] == "lerobot" and stated["settings"]["folder"] == str(folder)
    (folder / "more").write_text("x")
    with pytest.raises(
        BadInput, match=rf"base {folder}: got other files .*, expected {stated['settings']['sha256'][:12]}"
    ):
        load_policy(made)
    (folder / "more").unlink()
    load_policy(made)
    folder.rename(folder.parent / "elsewhere")
    with pytest.raises(BadInput, match=r"base .*: got no such folder.*Put LeRobot's policy back"):
        load_policy(made)


def test_a_checkpoint_without_its_base_is_neither_pushed_nor_exported(folder: Path) -> None:
    policy = NoiseSteeredPolicy(open_base(str(folder)), NoiseSteeredConfig(execute=2, width=8)).eval()
    made = save_policy(policy, folder.parent / "steered")
    refused = (lambda: content_of(made), lambda: export_onnx(policy), lambda: use_backend(policy, "torch", "bfloat16"))
    for attempt in refused:
        with pytest.raises(BadInput, match=rf"got a policy around LeRobot's in {folder}, expected one whose base"):
            attempt()


@pytest.mark.parametrize(
    ("config", "told", "said"),
    [
        ({"noise_scheduler_type": "DDPM"}, WHOLE, r"got DDPM, .*, expected DDIM.*\"num_inference_steps\": 10"),
        ({"n_obs_steps": 2}, WHOLE, "n_obs_steps: got 2, expected 1"),
        ({}, {"control_hz": 20.0}, r"robolearn.json: got no embodiment, action_kind.*jq .robolearn_interface"),
    ],
)
def test_a_base_that_cannot_be_steered_is_refused(folder: Path, config: Any, told: Any, said: str) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "robolearn.json").write_text(json.dumps(told))
    with pytest.raises(BadInput, match=said) as caught:
        open_base(str(folder))
    assert "\n" not in str(caught.value)


def test_algorithms_that_train_their_base_do_not_take_it(folder: Path) -> None:
    assert load_base(f"lerobot:{folder}", "cpu", sampled=True).config.name == "lerobot"
    with pytest.raises(BadInput, match=r"got one of LeRobot's, expected .* --algo dsrl, iql or proposals"):
        load_base(f"lerobot:{folder}", "cpu", sampled=False)
    samples = [c for c in (DsrlConfig, IqlConfig, RiqlConfig, ProposalsConfig) if c.samples_base]
    assert len(samples) == 4 and not any(c.samples_base for c in (FamO2oConfig, UniO4Config, RecapConfig))
    base = open_base(str(folder))
    with pytest.raises(BadInput, match="--steer-weight: got 1"):
        Dsrl(base, DsrlConfig(**SMALL, steer_weight=1.0), seed=0)
    with pytest.raises(BadInput, match=r"--imitate-own.*expected --no-imitate-own"):
        Proposals(base, ProposalsConfig(**SMALL, imitate_own=True), seed=0)
