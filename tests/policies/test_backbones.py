"""Backbones of timm and transformers from local folders: tiny models of the same classes, saved by their libraries."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from policies.networks.encoder_settings import EncoderConfig
from policies.networks.libraries import import_vision
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.registry import fresh_net
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy, save_policy
from robolearn.core import ArraySpec, BadInput, Interface

pytestmark = pytest.mark.long

EDGE = 56
CAMERAS = ("images.front", "images.wrist")
INTERFACE = Interface(
    {"proprio": ArraySpec((2,))} | {key: ArraySpec((EDGE, EDGE, 3), "uint8") for key in CAMERAS}, ArraySpec((2,)), 20.0
)
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 50_000,
}
TRANSFORMERS: dict[str, Callable[[Any], Any]] = {
    "dinov2": lambda t: t.Dinov2Config(**VISION, image_size=28, patch_size=14),
    "siglip": lambda t: t.SiglipConfig(vision_config=VISION | {"image_size": 32, "patch_size": 16}, text_config=TEXT),
    "clip": lambda t: t.CLIPConfig(vision_config=VISION | {"image_size": 32, "patch_size": 16}, text_config=TEXT),
    "resnet": lambda t: t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
}
TIMM: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("vit_tiny_patch16_224", {"embed_dim": 32, "depth": 2, "num_heads": 2, "patch_size": 14, "img_size": 56}),
    "convnext": ("convnext_atto", {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """name → a folder with a tiny model of that class, saved by its library."""
    root = tmp_path_factory.mktemp("backbones")
    transformers = import_vision("transformers")
    torch.manual_seed(0)
    for name, config in TRANSFORMERS.items():
        model = transformers.AutoModel.from_config(config(transformers))
        for value in model.parameters():
            value.data.normal_(0.0, 0.3)
        model.save_pretrained(root / name)
    timm = import_vision("timm")
    for name, (architecture, args) in TIMM.items():
        model = timm.create_model(architecture, pretrained=False, **args)
        timm.models._hub.save_for_hf(model, root / name, model_args=args, safe_serialization=True)
    (root / "dinov2/preprocessor_config.json").write_text(
        '{"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]}'
    )
    return {name: root / name for name in (*TRANSFORMERS, *TIMM)}


def encoder_of(folders: dict[str, Path], name: str, **settings: Any) -> EncoderConfig:
    library = "timm" if name in TIMM else "transformers"
    return EncoderConfig(kind=f"{library}:{folders[name]}", **settings)


def policy(config: EncoderConfig, interface: Interface = INTERFACE) -> Any:
    torch.manual_seed(1)
    flow = FlowConfig(network=NetworkConfig(width=16, depth=1, image_features=8, encoder=config), horizon=2, execute=2)
    return ChunkPolicy(fresh_net(flow, interface), Normalizer(interface), interface).eval()


def seen(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shown = {key: rng.integers(0, 256, (2, EDGE, EDGE, 3), dtype=np.uint8) for key in CAMERAS}
    return {"proprio": np.zeros((2, 2), np.float32)} | shown


@pytest.mark.parametrize("name", [*TRANSFORMERS, *TIMM])
def test_the_checkpoint_is_complete_without_folder_and_network(
    folders: dict[str, Path], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backbone"
    shutil.copytree(folders[name], folder)
    config = encoder_of({name: folder}, name, freeze=name == "dinov2", resize=96 if name == "convnext" else 0)
    made = policy(config)
    save_policy(made, tmp_path / "policy")
    shutil.rmtree(folder)
    assert str(tmp_path) not in (tmp_path / "policy/config.json").read_text()

    def unreachable(*args: Any, **more: Any) -> None:
        raise AssertionError("something was asked for over the network")

    monkeypatch.setattr("socket.socket.connect", unreachable)
    loaded: Any = load_policy(tmp_path / "policy")
    for one in (made, loaded):
        one.reset(0)
    np.testing.assert_array_equal(loaded.act(seen()), made.act(seen()))
    assert set(loaded.net.encoder.state_dict()) == set(made.net.encoder.state_dict())


def test_a_map_of_transformers_is_what_their_model_says_of_the_scaled_picture(folders: dict[str, Path]) -> None:
    made = policy(encoder_of(folders, "dinov2", freeze=True))
    picture = torch.rand(2, 3, EDGE, EDGE, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))
    model = import_vision("transformers").Dinov2Model.from_pretrained(folders["dinov2"]).eval()
    with torch.no_grad():
        tokens = model(pixel_values=(picture - mean) / std).last_hidden_state  # [CLS], then 4 x 4 places, row by row
        for key in CAMERAS:
            found = made.net.encoder.stored(key, picture)
            assert found.shape == (2, 32, 4, 4)
            for row, column in ((0, 0), (1, 3), (3, 2)):
                torch.testing.assert_close(
                    found[:, :, row, column], tokens[:, 1 + 4 * row + column], rtol=1e-4, atol=1e-5
                )


def test_siglip_sees_with_the_half_that_sees(folders: dict[str, Path]) -> None:
    made = policy(encoder_of(folders, "siglip"))
    whole = import_vision("transformers").AutoModel.from_pretrained(folders["siglip"]).eval()
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = whole.vision_model(pixel_values=image, interpolate_pos_encoding=True).last_hidden_state
        found = made.net.encoder.camera("images.front").backbone(image)
    torch.testing.assert_close(found.flatten(2).transpose(1, 2), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*TIMM])
def test_a_map_of_timm_is_what_their_model_says(folders: dict[str, Path], name: str) -> None:
    timm = import_vision("timm")
    architecture, args = TIMM[name]
    whole = timm.create_model(architecture, pretrained=False, **args).eval()
    whole.load_state_dict(load_file(folders[name] / "model.safetensors"))
    image = torch.rand(2, 3, EDGE, EDGE)
    with torch.no_grad():
        found = policy(encoder_of(folders, name, pooling="mean")).net.encoder.camera("images.front").backbone(image)
        expected = whole.forward_intermediates(image, indices=1, norm=False, intermediates_only=True)[-1]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_trained_or_frozen_shared_or_not(folders: dict[str, Path]) -> None:
    for freeze in (True, False):
        net = policy(encoder_of(folders, "dinov2", freeze=freeze, share=True)).net
        observation = Normalizer(INTERFACE).observation({k: torch.from_numpy(v) for k, v in seen().items()})
        net.requires_grad_(True)
        net.encode(observation).square().sum().backward()
        gradients = [p.grad is not None for p in net.encoder.cameras["shared"].backbone.parameters()]
        assert not any(gradients) if freeze else sum(gradients) > 10
    own = policy(encoder_of(folders, "dinov2")).net.encoder.state_dict()
    front = {k: v for k, v in own.items() if "front.backbone" in k}
    assert front and all(torch.equal(v, own[k.replace("front", "wrist")]) for k, v in front.items())


# --- bad input ------------------------------------------------------------------------------------------------


def spoil(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def without_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(next(key for key in tensors if "blocks.1" in key or "layer.1" in key))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("name", ["dinov2", "vit"])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        (shutil.rmtree, "got no such folder, expected a folder with config.json and model.safetensors"),
        (lambda folder: (folder / "config.json").unlink(), "got no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: got unreadable"),
        (lambda folder: (folder / "model.safetensors").unlink(), "got no weights, expected model.safetensors"),
        (pickled, r"got pickled weights \(pytorch_model.bin\), expected model.safetensors. Pickles are not read"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "expected weights of its config.json"),
        (without_a_tensor, "got no tensor '.*', expected weights of its config.json"),
        (lambda folder: spoil(folder, model_type="strange", architecture="strange"), "expected one of t"),
        (lambda folder: spoil(folder, model_type=None, architecture=None), "expected (one of )?t"),
    ],
)
def test_a_folder_that_will_not_do(
    folders: dict[str, Path], tmp_path: Path, name: str, what: Callable[[Path], Any], message: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(folders[name], folder)
    what(folder)
    with pytest.raises(BadInput, match=message) as caught:
        policy(encoder_of({name: folder}, name))
    assert "\n" not in str(caught.value) and "--encoder" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("vit", {"architecture": "hf-hub:someone/model"}, "got architecture 'hf-hub:someone/model'"),
        ("vit", {"model_args": {"checkpoint_path": "evil.pth"}}, "got model_args with 'checkpoint_path'"),
        ("vit", {"model_args": {"depth": -1, "no_such": 2}}, "expected an architecture of timm's"),
        ("dinov2", {"model_type": "own", "auto_map": {"AutoModel": "evil.Model"}}, "code of its own, which is not run"),
        ("dinov2", {"model_type": "timm_wrapper", "architecture": "hf-hub:a/b"}, "got model_type 'timm_wrapper'"),
    ],
)
def test_a_stranger_s_folder_reads_and_runs_nothing_else(
    folders: dict[str, Path], tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(folders[name], folder)
    spoil(folder, **changes)
    (folder / "evil.py").write_text("raise SystemExit('it was run')")
    with pytest.raises(BadInput, match=message):
        policy(encoder_of({name: folder}, name))


def test_a_stranger_s_policy_downloads_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    file = save_policy(policy(encoder_of(folders, "vit")), tmp_path / "policy") / "config.json"
    text = json.loads(file.read_text())
    encoder = text["settings"]["network"]["encoder"]
    good = json.loads(encoder["architecture"])
    for bad in ({"name": "hf-hub:a/b"}, {"args": {"checkpoint_path": "x.pth"}}, {"channels": 0}):
        encoder["architecture"] = json.dumps(good | bad)
        file.write_text(json.dumps(text))
        with pytest.raises(BadInput, match="encoder timm"):
            load_policy(tmp_path / "policy")
    encoder["architecture"] = "{"
    file.write_text(json.dumps(text))
    with pytest.raises(BadInput, match=r"architecture: got .*, expected what training wrote"):
        load_policy(tmp_path / "policy")


def test_pictures_that_a_backbone_does_not_take(folders: dict[str, Path]) -> None:
    odd = Interface({"images.front": ArraySpec((60, 60, 3), "uint8")}, ArraySpec((2,)), 20.0)
    with pytest.raises(BadInput, match=r"pictures of 60 x 60, of which it says: .*expected a size that it takes"):
        policy(encoder_of(folders, "vit"), odd)
    assert policy(encoder_of(folders, "vit", resize=56), odd).net.encoder.size == 8
    small = Interface({"images.front": ArraySpec((16, 16, 3), "uint8")}, ArraySpec((2,)), 20.0)
    with pytest.raises(BadInput, match="its map is 1 px, expected a larger --encoder-size, or --pooling mean"):
        policy(encoder_of(folders, "dinov2"), small)


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_without_the_library_there_is_one_line(
    folders: dict[str, Path], library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(BadInput, match=rf"--encoder {library}: got no {library}.*pip install .*\[vision\]'"):
        policy(encoder_of(folders, "vit" if library == "timm" else "dinov2"))
