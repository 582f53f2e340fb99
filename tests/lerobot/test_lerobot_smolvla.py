"""SmolVLAs that LeRobot made and saved, as policies, and as bases of value guidance, critics that choose and DSRL."""

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

from policies.kinds.gaussian import NoiseSteeredConfig, NoiseSteeredPolicy
from policies.storage.checkpoint import load_policy
from policies.storage.lerobot_base import open_base
from policies.storage.loading import open_policy
from policies.wrappers.prompted import set_prompt
from robolearn.cli.main import main
from robolearn.core import BadInput, Interface
from sim.registry import make_env

sys.path.insert(0, str(Path(__file__).parent))
from deploying import deployed
from learning import content, result
from saved_policies import theirs
from saved_smolvla import save_smolvla, save_vlm
from worded_looks import batch_of, looks

ONE: dict[str, Any] = {"cameras": ("front",), "picture": (48, 48)}  # as our worlds draw


@pytest.fixture(scope="module")
def world() -> Interface:
    return make_env("lift", 1, threads=1).interface


@pytest.fixture(scope="module")
def vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vlm(tmp_path_factory.mktemp("vlm") / "tiny", weights=True)


def noise_of(seed: int, row: int, call: int, shape: tuple[int, ...]) -> torch.Tensor:
    state = np.random.SeedSequence((seed, row, call)).generate_state(1, np.uint64)
    return torch.randn(shape, generator=torch.Generator().manual_seed(int(state[0]) >> 1))


@pytest.mark.parametrize(
    "settings", [{}, {"load_vlm_weights": True}, {"empty_cameras": 1, "pad_language_to": "max_length"},
                 {"cameras": ("wrist",), "add_image_special_tokens": True, "prefix_length": 80}],
)  # fmt: skip
def test_it_does_what_select_action_does(tmp_path: Path, world: Interface, vlm: Path, settings: dict[str, Any]) -> None:
    folder = save_smolvla(tmp_path / "p", world, vlm, **settings)
    ours, (policy, before, after) = open_policy(f"lerobot:{folder}"), theirs(folder, "smolvla")
    set_prompt(ours, "", "lift the cube")
    assert ours.execute_steps == 5 and not ours.observes_every_step
    cameras = settings.get("cameras", ("front", "wrist"))
    assert set(ours.interface.observation) == {"proprio", *(f"images.{name}" for name in cameras)}
    shape, seen = (8, world.action.size + 2), looks(world, 12, cameras=cameras)
    for seed in (3, 4):  # two episodes
        ours.reset(seed)
        policy.reset()
        for t, look in enumerate(seen[seed - 3 :][:11]):
            if t % 5 == 0:
                chunk = ours.act(look)
            batch = before(batch_of(look, "lift the cube"))
            expected = after(policy.select_action(batch, noise=noise_of(seed, 0, t // 5, shape)[None])).numpy()
            np.testing.assert_allclose(chunk[:, t % 5], expected.clip(-1, 1), atol=1e-5, err_msg=f"step {t}")


def chosen_by_lerobot(folder: Path, seen: dict[str, np.ndarray], noise: torch.Tensor) -> np.ndarray:
    """(N, 5, Da) of LeRobot's own way from an observation and noise to actions."""
    policy, before, after = theirs(folder, "smolvla")
    batch = before(batch_of(seen, "lift the cube"))
    return np.stack([after(policy.select_action(batch, noise=noise)).numpy() for _ in range(5)], 1).clip(-1, 1)


def tensors(seen: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {key: torch.tensor(value) for key, value in seen.items()}


def test_noise_with_its_padding_becomes_the_chunk_that_select_action_executes(
    tmp_path: Path, world: Interface, vlm: Path
) -> None:
    folder = save_smolvla(tmp_path / "p", world, vlm, empty_cameras=1)
    base, seen = open_base(str(folder), words=lambda: "lift the cube"), looks(world, 1, worlds=3)[0]
    assert base.net.noise_shape == (8, world.action.size + 2) and base.interface.action.size == world.action.size
    noise = torch.randn(3, *base.net.noise_shape)
    normal = base.normalizer.observation(tensors(seen))
    mine = base.normalizer.action_back(base.net.sample(base.net.encode(normal), noise)).numpy()
    assert mine.shape == (3, 8, world.action.size)
    np.testing.assert_allclose(mine[:, :5], chosen_by_lerobot(folder, seen, noise), atol=1e-5)
    # The noise of the padding counts, the words do, and a picture that is encoded already gives the same.
    other = torch.cat((noise[..., : world.action.size], torch.zeros(3, 8, 2)), 2)
    assert np.abs(chosen_by_lerobot(folder, seen, other) - mine[:, :5]).max() > 0.01
    told = open_base(str(folder), words=lambda: "put it down")
    assert (
        told.net.sample(told.net.encode(normal), noise) - base.net.sample(base.net.encode(normal), noise)
    ).abs().max() > 1e-3
    steered = NoiseSteeredPolicy(base, NoiseSteeredConfig(execute=5, width=8))
    encoded = steered.encoded(tensors(seen))
    assert (
        encoded["images.front/seen"].shape == (3, 4 * 16)
        and steered.feature_size == world.observation["proprio"].size + 32
    )
    again = base.net.sample(base.net.encode(base.normalizer.observation(encoded)), noise)
    np.testing.assert_allclose(base.normalizer.action_back(again).numpy(), mine, atol=1e-5)
    features = steered.encode(encoded)
    tokens = encoded["images.front/seen"].view(3, 4, 16).mean(1)
    torch.testing.assert_close(features[:, :16], tokens)


def test_many_samples_of_one_world_are_those_of_as_many_worlds(tmp_path: Path, world: Interface, vlm: Path) -> None:
    folder = save_smolvla(tmp_path / "p", world, vlm)
    once, often = open_policy(f"lerobot:{folder}"), open_policy(f"lerobot:{folder}")
    for policy in (once, often):
        set_prompt(policy, "lift the cube")
    for look in looks(world, 2, worlds=2):
        found = once.act_samples(look, 3)
        assert found.shape[:2] == (2, 3) and np.ptp(found, axis=1).max() > 0.01
        many = {key: np.repeat(value, 3, 0) for key, value in look.items()}
        np.testing.assert_allclose(found.reshape(6, *found.shape[2:]), often.act(many), atol=1e-4)


@pytest.mark.timeout(900)
def test_deploy_runs_it_behind_the_safety_filter(tmp_path: Path, world: Interface, vlm: Path) -> None:
    deployed(save_smolvla(tmp_path / "p", world, vlm, scale=0.02, **ONE), tmp_path)


def test_dsrl_steers_its_noise_and_leaves_its_weights(
    tmp_path: Path, world: Interface, vlm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_smolvla(tmp_path / "p", world, vlm, **ONE)
    before, out = content(folder), tmp_path / "steered"
    words = ["finetune", "--algo", "dsrl", "--policy", f"lerobot:{folder}", "--task", "lift", "--worlds", 2,
             "--out", out, "--width", 16, "--utd", 0.1, "--batch", 16]  # fmt: skip
    found = result(capsys, *words, "--env-steps", 300)
    assert found["algorithm"] == "dsrl" and content(folder) == before
    assert not any("vlm" in name or "expert" in name for name in load_file(out / "policy/model.safetensors"))
    policy = load_policy(out)
    assert isinstance(policy, NoiseSteeredPolicy)
    # x_0 = M tanh μ(s) of the actor as it is stored, through LeRobot's own select_action.
    seen = looks(world, 1, worlds=2, **ONE)[0]
    features = policy.encode(tensors(seen))
    noise = 1.5 * torch.tanh(policy.actor.net(features)[:, : policy.latent]).detach().view(2, 8, -1)
    assert noise.abs().max() > 0.01
    np.testing.assert_allclose(policy.act(seen), chosen_by_lerobot(folder, seen, noise), atol=1e-5)
    # It goes on where it was, with the base in another place.
    moved = Path(shutil.move(folder, tmp_path / "moved"))
    words[words.index(f"lerobot:{folder}")] = f"lerobot:{moved}"
    assert result(capsys, *words, "--env-steps", 420, "--resume")["env_steps"] > found["env_steps"]
    assert content(moved) == before
    assert result(capsys, "evaluate", "--policy", out, "--task", "lift", "--episodes", 2)["success"]["episodes"] == 2


def test_critics_learn_offline_choose_and_guide(
    tmp_path: Path, world: Interface, vlm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_smolvla(tmp_path / "p", world, vlm, **ONE)
    before, name = content(folder), f"lerobot:{folder}"
    shared = ["--policy", name, "--task", "lift", "--width", 16, "--batch", 16]
    online = result(capsys, "finetune", "--algo", "proposals", *shared, "--worlds", 2, "--env-steps", 320, "--out",
                    tmp_path / "chosen", "--trust-after", 0, "--utd", 0.1, "--no-imitate-own")  # fmt: skip
    assert online["env_steps"] == 320 and content(folder) == before
    # Its decision is the best by the critics among what LeRobot makes of the noise of each proposal.
    policy, seen = load_policy(tmp_path / "chosen"), looks(world, 1, worlds=2, **ONE)[0]
    count = policy.config.proposals
    noise = torch.randn(2, count, 8, world.action.size + 2)
    chunks = np.stack([chosen_by_lerobot(folder, seen, noise[:, i]) for i in range(count)], 1)
    proposed = policy.propose(tensors(seen), noise).view(2, count, 5, -1).numpy()
    np.testing.assert_allclose(proposed, chunks, atol=1e-5)
    data = tmp_path / "data"
    result(
        capsys,
        "collect",
        "--task",
        "lift",
        "--episodes",
        2,
        "--quality",
        "expert",
        "--cameras",
        "front",
        "--image-size",
        48,
        "--out",
        data,
    )
    offline = result(capsys, "finetune", "--algo", "iql", *shared, "--data", data, "--env-steps", 0, "--updates", 5,
                     "--out", tmp_path / "critics")  # fmt: skip
    assert offline["updates_offline"] == 5 and content(folder) == before
    guided = result(capsys, "evaluate", "--policy", name, "--task", "lift", "--episodes", 2,
                    "--words", "raise the cube", "--guide", tmp_path / "chosen", "--guide-samples", 4)  # fmt: skip
    assert guided["guide"]["samples"] == 4 and guided["guide"]["departures"] > 0.3 and content(folder) == before


def test_what_it_lacks_is_one_line(
    tmp_path: Path, world: Interface, vlm: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path, *words: object) -> str:
        capsys.readouterr()
        command = words or ("evaluate", "--task", "lift", "--episodes", 1)
        assert main([str(word) for word in (*command, "--policy", f"lerobot:{folder}")]) == 2
        said = capsys.readouterr().err.strip()
        assert said.count("\n") == 0
        return said

    policy = open_policy(f"lerobot:{(folder := save_smolvla(tmp_path / 'p', world, vlm))}")
    with pytest.raises(BadInput, match="words: missing; expected a sentence before the policy acts"):
        policy.act(looks(world, 1)[0])
    with pytest.raises(BadInput, match="words: missing; expected the task in a sentence"):
        open_base(str(folder))
    assert "camera: got top; available: front" in refused(save_smolvla(tmp_path / "top", world, vlm, cameras=("top",)))
    (folder / "robolearn.json").unlink()
    missing = refused(folder, "finetune", "--algo", "dsrl", "--task", "lift", "--out", tmp_path / "o")
    assert "robolearn.json: got no control_hz, embodiment, action_kind" in missing
    config = folder / "config.json"
    whole = json.loads(config.read_text())
    for change, expected in (
        ({"vlm_model_name": "maker/model"}, "which is no folder and not in the Hub's cache, .*hf download maker/model"),
        ({"vlm_model_name": str(tmp_path / "gone")}, "gone, which is no folder"),
        ({"adapt_to_pi_aloha": True}, "adapt_to_pi_aloha: got true, expected false"),
        ({"input_features": {}}, "input features: got none, expected observation.state and pictures"),
    ):
        config.write_text(json.dumps(whole | change))
        with pytest.raises(BadInput, match=expected):
            open_policy(f"lerobot:{folder}")
    config.write_text(json.dumps(whole))
    own = shutil.copytree(vlm, tmp_path / "own")
    named = json.loads((own / "config.json").read_text())
    config.write_text(json.dumps(whole | {"vlm_model_name": str(own)}))
    for file, change, expected in (
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.T", None]}}, "code of its own"),
        ("config.json", named | {"model_type": "llama"}, "a model of type llama, expected smolvlm"),
    ):
        kept = (own / file).read_text()
        (own / file).write_text(json.dumps(change))
        assert expected in refused(folder)
        (own / file).write_text(kept)
    from policies.storage import lerobot_vlm

    monkeypatch.setattr(lerobot_vlm, "find_spec", lambda name: None)
    assert "no transformers in this environment" in (said := refused(folder)) and "[smolvla]'" in said
