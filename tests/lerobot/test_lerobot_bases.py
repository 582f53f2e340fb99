"""Diffusion policies that LeRobot made and saved, as bases of value guidance, of critics that choose, and of DSRL."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from policies.kinds.gaussian import NoiseSteeredPolicy
from policies.storage.checkpoint import load_policy
from policies.storage.lerobot_base import open_base
from policies.storage.loading import base_sha256
from robolearn.cli.main import main
from robolearn.core import BadInput, Interface
from sim.registry import make_env

sys.path.insert(0, str(Path(__file__).parent))
from learning import content, result
from saved_policies import CAMERAS, OBJECTS, STATE, looks, save, theirs

DDIM = {"n_obs_steps": 1, "noise_scheduler_type": "DDIM", "num_inference_steps": 3}


@pytest.fixture(scope="module")
def world() -> Interface:
    return make_env("lift", 1, threads=1).interface


def told(folder: Path, world: Interface) -> Path:
    """`folder`, which says what its data set was."""
    stated = {key: value for key, value in world.to_json().items() if key not in ("observation",)}
    (folder / "robolearn.json").write_text(json.dumps(stated))
    return folder


def chosen_by_lerobot(folder: Path, seen: dict[str, np.ndarray], noise: torch.Tensor, steps: int) -> np.ndarray:
    """(N, steps, Da) of LeRobot's own way from an observation and noise to actions."""
    policy, before, after = theirs(folder, "diffusion")
    names = {"proprio": STATE, "objects": OBJECTS}
    batch = {}
    for key, value in seen.items():
        picture = value.ndim == 4
        one = torch.tensor(value).permute(0, 3, 1, 2).float() / 255 if picture else torch.tensor(value)
        batch[names.get(key) or f"{CAMERAS}{key.removeprefix('images.')}"] = one
    batch = before(batch)
    return np.stack([after(policy.select_action(batch, noise=noise)).numpy() for _ in range(steps)], 1).clip(-1, 1)


@pytest.mark.parametrize(
    ("cameras", "settings"),
    [((), {}), (("front", "wrist"), {}), (("wrist", "front"), {"use_separate_rgb_encoder_per_camera": True})],
)
def test_noise_becomes_the_chunk_that_select_action_executes(
    tmp_path: Path, world: Interface, cameras: tuple[str, ...], settings: dict[str, Any]
) -> None:
    more = {"crop_shape": (28, 28), **settings} if cameras else {}
    folder = told(save(tmp_path / "p", "diffusion", world, 32 * bool(cameras), cameras=cameras, **DDIM, **more), world)
    base, seen = open_base(str(folder)), looks(world, 1, worlds=3)[0]
    rng = np.random.default_rng(0)
    seen |= {f"images.{name}": rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8) for name in cameras}
    noise = torch.randn(3, 8, world.action.size)
    normal = base.normalizer.observation({key: torch.tensor(value) for key, value in seen.items()})
    mine = base.normalizer.action_back(base.net.sample(base.net.encode(normal), noise)).numpy()
    np.testing.assert_allclose(mine[:, :5], chosen_by_lerobot(folder, seen, noise, 5), atol=1e-5)
    # A picture that is encoded already gives the same.
    encoded = NoiseSteeredPolicy(base, _settings()).encoded({key: torch.tensor(value) for key, value in seen.items()})
    assert all(f"images.{name}/seen" in encoded for name in cameras)
    again = base.net.sample(base.net.encode(base.normalizer.observation(encoded)), noise)
    np.testing.assert_allclose(base.normalizer.action_back(again).numpy(), mine, atol=1e-5)


def _settings() -> Any:
    from policies.kinds.gaussian import NoiseSteeredConfig

    return NoiseSteeredConfig(execute=5, width=8)


@pytest.mark.parametrize("cameras", [(), ("front",)])
def test_dsrl_steers_its_noise_and_leaves_its_weights(
    tmp_path: Path, world: Interface, capsys: pytest.CaptureFixture[str], cameras: tuple[str, ...]
) -> None:
    more = {"crop_shape": (28, 28)} if cameras else {}
    folder = told(save(tmp_path / "p", "diffusion", world, 32 * bool(cameras), cameras=cameras, **DDIM, **more), world)
    before, out = content(folder), tmp_path / "steered"
    words = ["finetune", "--algo", "dsrl", "--policy", f"lerobot:{folder}", "--task", "lift", "--worlds", 2,
             "--out", out, "--width", 16, "--utd", 0.1, "--batch", 16]  # fmt: skip
    found = result(capsys, *words, "--env-steps", 400)
    assert found["algorithm"] == "dsrl" and content(folder) == before
    stored = load_file(out / "policy/model.safetensors")
    assert not any("unet" in name or "rgb_encoder" in name for name in stored)
    policy = load_policy(out)
    assert isinstance(policy, NoiseSteeredPolicy)
    # x_0 = M tanh μ(s) of the actor as it is stored, through LeRobot's own select_action.
    seen = {key: value for key, value in looks(world, 1, worlds=2)[0].items() if key in policy.interface.observation}
    seen |= {f"images.{name}": np.full((2, 32, 32, 3), 99, np.uint8) for name in cameras}
    features = policy.encode({key: torch.tensor(value) for key, value in seen.items()})
    noise = 1.5 * torch.tanh(policy.actor.net(features)[:, : policy.latent]).detach().view(2, 8, -1)
    assert noise.abs().max() > 0.01
    np.testing.assert_allclose(policy.act(seen), chosen_by_lerobot(folder, seen, noise, 5), atol=1e-5)
    # It goes on where it was, with the base in another place.
    moved = Path(shutil.move(folder, tmp_path / "moved"))
    words[words.index(f"lerobot:{folder}")] = f"lerobot:{moved}"
    assert result(capsys, *words, "--env-steps", 560, "--resume")["env_steps"] > found["env_steps"]
    assert content(moved) == before
    assert result(capsys, "evaluate", "--policy", out, "--task", "lift", "--episodes", 2)["success"]["episodes"] == 2
    # Its base is another one, or gone: one line.
    (moved / "robolearn.json").write_text(json.dumps({**json.loads(before["robolearn.json"]), "control_hz": 21}))
    with pytest.raises(BadInput, match=r"other files .*, expected [0-9a-f]{12}"):
        load_policy(out)
    shutil.rmtree(moved)
    assert main(["evaluate", "--policy", str(out), "--task", "lift", "--episodes", "1"]) == 2
    said = capsys.readouterr().err.strip()
    assert f"base {moved}: got no such folder" in said and "Put LeRobot's policy back" in said


def test_critics_learn_offline_and_choose_among_its_samples(
    tmp_path: Path, world: Interface, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data = tmp_path / "p", tmp_path / "data"
    told(save(folder, "diffusion", world, **DDIM), world)
    before = content(folder)
    result(capsys, "collect", "--task", "lift", "--episodes", 4, "--out", data)
    offline = result(
        capsys, "finetune", "--algo", "iql", "--policy", f"lerobot:{folder}", "--task", "lift", "--data", data,
        "--env-steps", 0, "--updates", 30, "--out", tmp_path / "critics", "--width", 16, "--proposals", 4,
    )  # fmt: skip
    assert offline["updates_offline"] == 30 and content(folder) == before
    online = result(
        capsys, "finetune", "--algo", "proposals", "--policy", f"lerobot:{folder}", "--task", "lift", "--worlds", 2,
        "--env-steps", 320, "--out", tmp_path / "chosen", "--width", 16, "--data", data, "--trust-after", 0,
        "--utd", 0.1, "--no-imitate-own",
    )  # fmt: skip
    assert online["env_steps"] == 320 and content(folder) == before
    # Its decision is the best by the critics among what LeRobot makes of the noise of each proposal.
    policy, seen = load_policy(tmp_path / "critics"), looks(world, 1, worlds=3)[0]
    noise = torch.randn(3, 4, 8, world.action.size)
    tensors = {key: torch.tensor(value) for key, value in seen.items()}
    decided = policy.decide(tensors, noise).detach().view(3, 5, -1).numpy()
    chunks = np.stack([chosen_by_lerobot(folder, seen, noise[:, i], 5) for i in range(4)], 1)
    values = policy.values(policy.encode(tensors), torch.from_numpy(chunks).flatten(2))
    ahead = (values - values[:, :, :1]).detach().numpy()
    best = (ahead.mean(0) - 0.5 * ahead.std(0)).argmax(1)
    np.testing.assert_allclose(decided, chunks[np.arange(3), best], atol=1e-5)
    for run in ("critics", "chosen"):
        found = result(capsys, "evaluate", "--policy", tmp_path / run, "--task", "lift", "--episodes", 2)
        assert found["success"]["episodes"] == 2


@pytest.mark.parametrize(("kind", "settings"), [("diffusion", {"n_obs_steps": 2}), ("diffusion", DDIM), ("act", {})])
def test_critics_guide_it_whatever_its_sampler(
    tmp_path: Path, world: Interface, capsys: pytest.CaptureFixture[str], kind: str, settings: dict[str, Any]
) -> None:
    """Critics of a policy of ours choose among N samples of LeRobot's, in one pass; ACT has one sample."""
    folder, base = save(tmp_path / "p", kind, world, **settings), tmp_path / "base"
    told(save(base, "diffusion", world, **DDIM), world)
    data, guide = tmp_path / "data", tmp_path / "guide"
    result(capsys, "collect", "--task", "lift", "--episodes", 2, "--out", data)
    result(capsys, "finetune", "--algo", "iql", "--policy", f"lerobot:{base}", "--task", "lift", "--data", data,
           "--env-steps", 0, "--updates", 20, "--out", guide, "--width", 16)  # fmt: skip
    before = content(folder)
    found = result(capsys, "evaluate", "--policy", f"lerobot:{folder}", "--task", "lift", "--episodes", 2,
                   "--guide", guide, "--guide-samples", 8)  # fmt: skip
    assert found["success"]["episodes"] == 2 and content(folder) == before
    assert found["guide"]["samples"] == 8 and (found["guide"]["departures"] > 0.5) == (kind == "diffusion")


def test_what_cannot_be_steered_is_one_line_with_the_way_out(
    tmp_path: Path, world: Interface, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(folder: Path, *words: object, algo: str = "dsrl") -> str:
        flags = ["finetune", "--algo", algo, "--policy", f"lerobot:{folder}", "--task", "lift", "--out", tmp_path / "o"]
        assert main([str(word) for word in (*flags, *words)]) == 2
        said = capsys.readouterr().err.strip()
        assert said.count("\n") == 0
        return said

    good = save(tmp_path / "good", "diffusion", world, **DDIM)
    missing = refused(good)
    assert "robolearn.json: got no control_hz, embodiment, action_kind" in missing and "jq .robolearn_interf" in missing
    told(good, world)
    assert "--steer-weight" in refused(good, "--steer-weight", 1)
    assert "expected --no-imitate-own" in refused(good, algo="proposals")
    for algo in ("reinflow", "recap", "famo2o", "rlpd"):
        assert "got one of LeRobot's, expected one that robolearn trained, or --algo dsrl" in refused(good, algo=algo)
    act = told(save(tmp_path / "act", "act", world), world)
    assert "type: got act, expected one whose samples begin with noise: diffusion" in refused(act)
    noisy = told(save(tmp_path / "ddpm", "diffusion", world, n_obs_steps=1), world)
    said = refused(noisy)
    assert "got DDPM, whose every step draws noise, expected DDIM" in said and '"num_inference_steps": 10' in said
    two = told(save(tmp_path / "two", "diffusion", world, **(DDIM | {"n_obs_steps": 2})), world)
    assert "n_obs_steps: got 2, expected 1" in refused(two)


def test_a_person_in_the_loop_beside_a_base_whose_weights_stay(
    tmp_path: Path, world: Interface, capsys: pytest.CaptureFixture[str]
) -> None:
    """Actor and learner are processes of their own, which open it each."""
    folder = told(save(tmp_path / "p", "diffusion", world, **DDIM), world)
    before, out = content(folder), tmp_path / "run"
    words = ["hil", "run", "--algo", "dsrl", "--policy", f"lerobot:{folder}", "--task", "lift", "--out", out,
             "--operator", "scripted", "--width", 16, "--batch", 16, "--warmup", 20, "--utd", 0.5]  # fmt: skip
    found = result(capsys, *words, "--env-steps", 80)
    assert found["finished"] and found["updates"] > 0 and content(folder) == before
    policy = load_policy(out)
    assert isinstance(policy, NoiseSteeredPolicy) and Path(policy.proposer.config.folder) == folder.resolve()
    assert not any("unet" in name for name in load_file(out / "policy/model.safetensors"))
    # Another base of the same sizes is another run's; weights of ours alone would not show it.
    other = told(save(tmp_path / "other", "diffusion", world, **DDIM | {"num_inference_steps": 2}), world)
    assert base_sha256(open_base(str(other))) != base_sha256(open_base(str(folder)))
    words[words.index(f"lerobot:{folder}")] = f"lerobot:{other}"
    assert main([str(word) for word in (*words, "--env-steps", 160, "--resume")]) != 0
    # What would train it is refused before anything is begun.
    words[words.index("dsrl")], words[words.index(out)] = "recap", tmp_path / "none"
    capsys.readouterr()
    assert main([str(word) for word in (*words, "--env-steps", 80)]) == 2
    assert "got one of LeRobot's, expected one that robolearn trained" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
