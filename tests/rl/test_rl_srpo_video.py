"""SRPO in the latent space of V-JEPA 2: a tiny model of the real class, saved and read again by the real library."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from policies.networks.libraries import import_vision
from robolearn.core import BadInput
from robolearn.rewards.vla.world_model import KEPT, WorldModel
from robolearn.rl.algorithms.srpo import informative, self_referential

pytestmark = pytest.mark.long  # the library alone takes seconds to import
Make = Callable[..., Any]
FRAMES, WIDTH = 4, 24


@pytest.fixture(scope="module")
def vjepa(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a V-JEPA 2 of random weights that takes 4 frames of 32 px."""
    tf, folder = import_vision("transformers"), tmp_path_factory.mktemp("vjepa")
    torch.manual_seed(0)
    tf.VJEPA2Model(tf.VJEPA2Config(
        patch_size=8, crop_size=32, frames_per_clip=FRAMES, tubelet_size=2, hidden_size=WIDTH, num_attention_heads=2,
        num_hidden_layers=2, mlp_ratio=2.0, initializer_range=0.2, pred_hidden_size=12, pred_num_attention_heads=1,
        pred_num_hidden_layers=1, pred_mlp_ratio=2.0,
    )).save_pretrained(folder)  # fmt: skip
    tf.VJEPA2VideoProcessor(crop_size=32).save_pretrained(folder)
    return folder


def video(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (frames, 40, 56, 3), dtype=np.uint8)


def by_the_library(folder: Path, shown: np.ndarray) -> np.ndarray:
    """The mean over the tokens that the whole model, predictor included, gives for these frames."""
    tf = import_vision("transformers")
    model, processor = tf.VJEPA2Model.from_pretrained(folder), tf.AutoVideoProcessor.from_pretrained(folder)
    with torch.no_grad():
        tokens = model(**processor([*shown[None]], return_tensors="pt")).last_hidden_state
    assert tokens.shape == (1, FRAMES // 2 * 16, WIDTH)  # pairs of frames, 4 x 4 patches
    return tokens[0].double().mean(0).numpy()


def test_a_latent_is_the_mean_of_the_tokens_of_frames_all_over_the_video(vjepa: Path) -> None:
    """Of nine frames 0, 3, 5 and 8, the nearest to 0, 8/3, 16/3 and 8; of two each twice."""
    model, nine, two = WorldModel(str(vjepa), "--latent"), video(9), video(2, seed=1)
    for shown, at in ((nine, [0, 3, 5, 8]), (two, [0, 0, 1, 1]), (two[:1], [0, 0, 0, 0])):
        assert np.allclose(model.latent(shown).numpy(), by_the_library(vjepa, shown[at]), atol=1e-5)
    assert not torch.equal(model.latent(nine), model.latent(nine[::-1])), "the order of the frames counts"


def test_a_video_that_comes_again_is_not_encoded_again(vjepa: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, encoded = WorldModel(str(vjepa), "--latent"), []
    monkeypatch.setattr(model, "_encoded", lambda shown: encoded.append(shown) or torch.zeros(1))
    first, other = video(6), video(6, seed=1)
    for shown in (first, other, first.copy(), other):
        model.latent(shown)
    assert len(encoded) == 2
    for seed in range(KEPT):
        model.latent(np.full((2, 1, 1, 3), [seed % 256, seed // 256, 0], np.uint8))
    model.latent(np.full((2, 1, 1, 3), [0, (KEPT - 1) // 256, 0], np.uint8))
    assert len(encoded) == 2 + KEPT, "the newest are kept"
    model.latent(first)
    assert len(encoded) == 2 + KEPT + 1, "and no others"


def test_failures_are_rewarded_by_latents_of_whole_videos(
    vjepa: Path, point: Make, make_policy: Make, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = point(16, pixels=True)
    policy = make_policy(world.interface, horizon=1, execute=1)
    wide = kit.NOISE.__class__(sigma_min=0.3, sigma_max=0.6)
    made = kit.runner(world, policy, "srpo", group=8, noise=wide, latent=f"vjepa2:{vjepa}")
    algorithm, found = made.algorithm, []
    assert algorithm.compared == ("images.front",) and algorithm.encoder is None
    returns = algorithm.returns
    monkeypatch.setattr(algorithm, "returns", lambda batch: found.append((batch, returns(batch))) or found[-1][1])
    row = made.iterate(0)
    ((batch, (reward, _)),) = found
    solved = (batch.on_grid(batch.solved.float()).sum(0) > 0).numpy()
    kept = informative(solved, algorithm.group)
    latent = []
    for w in np.flatnonzero(kept):
        rows = [r for r in batch.grid[:, w].tolist() if r >= 0]
        shown = [batch.observation["images.front"][rows[0]], *batch.next_observation["images.front"][rows]]
        at = [round(i * (len(shown) - 1) / 3) for i in range(4)]
        latent.append(by_the_library(vjepa, np.stack([shown[i] for i in at])))
    assert kept.any() and reward[kept].numpy() == pytest.approx(
        self_referential(np.stack(latent), solved[kept]), abs=1e-4
    )
    assert 0 < row["failure_reward"] < 0.6
    two = {key: torch.from_numpy(video(3, seed)) for seed, key in enumerate(("images.front", "images.wrist"))}
    assert algorithm.latent(two).shape == (2 * WIDTH,), "each camera has its own"


def spoil(folder: Path, copy: Path, what: str) -> None:
    """A `copy` of the `folder` in which something is wrong."""
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    config, weights = copy / "config.json", copy / "model.safetensors"
    tensors = load_file(weights)
    key = "encoder.layernorm.weight"
    match what:
        case "kind":
            config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "vit"}))
        case "processor":
            (copy / "video_preprocessor_config.json").unlink()
        case "tensor":
            del tensors[key]
            save_file(tensors, weights, {"format": "pt"})
        case "nan":
            tensors[key] = tensors[key] * math.nan
            save_file(tensors, weights, {"format": "pt"})
        case "weights":
            weights.unlink()
            (copy / "pytorch_model.bin").write_bytes(b"")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("kind", "model_type: got vit"),
        ("processor", "expected a processor of pictures"),
        ("tensor", "got no tensor 'encoder.layernorm.weight'"),
        ("nan", "got a latent that is not finite"),
        ("weights", "Pickles are not read"),
    ],
)
def test_a_folder_that_is_none_is_refused(vjepa: Path, tmp_path: Path, what: str, said: str) -> None:
    spoil(vjepa, tmp_path / what, what)
    with pytest.raises(BadInput, match=said):
        WorldModel(str(tmp_path / what), "--latent vjepa2:").latent(video(4))


def test_what_is_no_latent_is_refused(point: Make, kit: Any, tmp_path: Path) -> None:
    for latent in ("video", "vjepa2", "vjepa2:", "pictures:x"):
        with pytest.raises(BadInput, match=r"--latent: got .*vjepa2:<model>"):
            kit.runner(point(4), algo="srpo", latent=latent)
    with pytest.raises(BadInput, match="--latent: got vjepa2"):
        kit.runner(point(4), algo="srpo", latent=f"vjepa2:{tmp_path}")
    with pytest.raises(BadInput, match=r"--latent vjepa2: .*no such folder"):
        kit.runner(point(4, pixels=True), algo="srpo", latent=f"vjepa2:{tmp_path / 'none'}")
