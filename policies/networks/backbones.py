"""The encoders of a camera by their names: what they are built from, and the weights that they begin with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from policies.networks import efficientnet, libraries, resnet
from policies.networks.encoder_settings import LIBRARIES, EncoderConfig
from policies.networks.spatial import BackboneEncoder, SpatialCnn
from robolearn.core import BadInput

STRIDE = {"resnet18": 32, "efficientnet_lite0": 32}  # pixels of a picture to one of the map


def build_camera(channels: int, size: tuple[int, int], features: int, config: EncoderConfig) -> nn.Module:
    """The encoder of pictures of (c, H, W) = (channels, *size), with random weights.

    Raises:
      BadInput: a pretrained one for other pictures than RGB, one of a folder that was not `resolved`, or pictures that
        are too small for a map.
    """
    if config.kind == "cnn" and not config.resize:
        return SpatialCnn(channels, features, config.pooling)
    if config.kind == "cnn":
        raise BadInput(
            "--encoder-size", got=config.resize, expected="another --encoder than cnn, or pictures of that size"
        )
    if channels != 3 and config.kind != "resnet18":
        raise BadInput(f"--encoder {config.kind}", got=f"pictures of {channels} channels", expected="3: RGB")
    if config.kind in STRIDE:
        edges = (config.resize,) if config.resize else size
        _check_map(min(-(-edge // STRIDE[config.kind]) for edge in edges), config, size)
    if config.kind == "resnet18":
        half = (0.5,) * channels
        return BackboneEncoder(resnet.ResNet18(channels), resnet.CHANNELS, half, half, features, config)
    if config.kind == "efficientnet_lite0":
        made = efficientnet.EfficientNetLite0()
        scale = efficientnet.CENTRE, efficientnet.SCALE
        return BackboneEncoder(made, efficientnet.CHANNELS, *scale, features, config)
    library, what = config.kind.partition(":")[0], f"encoder {config.kind}"
    architecture = _architecture(config, what)
    centre, scale = (tuple(float(v) for v in architecture[key]) for key in ("centre", "scale"))
    backbone = libraries.build(library, architecture, what)
    return BackboneEncoder(backbone, int(architecture["channels"]), centre, scale, features, config)


def resolved(config: EncoderConfig, sizes: set[tuple[int, int]]) -> EncoderConfig:
    """`config` with the architecture in its folder; as it is where there is none.

    Args:
      sizes: (H, W) of the pictures that it will get.

    Raises:
      BadInput: the folder is not one of the library's, or its backbone does not take such pictures.
    """
    library, _, folder = config.kind.partition(":")
    if library not in LIBRARIES or not folder or not sizes:
        return config
    architecture = libraries.read_folder(library, Path(folder))
    backbone = libraries.build(library, architecture, f"--encoder {config.kind}").eval()
    channels = {_channels(backbone, config, size) for size in sizes}
    architecture["channels"] = channels.pop()
    return replace(config, kind=library, architecture=libraries.dumps(architecture))


def load_pretrained(cameras: nn.ModuleDict, config: EncoderConfig) -> None:
    """Put the weights that `config` names, in a package or in its folder, into the backbones of `cameras`.

    Raises:
      BadInput: there are none, or they do not fit.
    """
    library, _, folder = config.kind.partition(":")
    encoders: list[Any] = list(cameras.values())
    if not encoders:
        return
    if config.kind == "efficientnet_lite0":
        weights = efficientnet.pretrained_weights()
        for encoder in encoders:
            encoder.backbone.load_state_dict(weights)
    elif library in LIBRARIES and folder:
        libraries.read_weights(library, Path(folder), encoders[0].backbone)
        for encoder in encoders[1:]:
            encoder.backbone.load_state_dict(encoders[0].backbone.state_dict())


@torch.no_grad()
def _channels(backbone: nn.Module, config: EncoderConfig, size: tuple[int, int]) -> int:
    height, width = (config.resize, config.resize) if config.resize else size
    try:
        maps = backbone(torch.zeros(1, 3, height, width, device="cpu"))
    except Exception as error:  # a library's own, of any type
        got = f"pictures of {height} x {width}, of which it says: {(str(error).splitlines() or [''])[0][:160]}"
        raise BadInput(
            f"--encoder {config.kind}", got=got, expected="a size that it takes, by --encoder-size"
        ) from error
    if maps.ndim != 4 and config.pooling != "mean":
        raise BadInput("--pooling", got="spatial_softmax of a backbone without a map", available=["mean"])
    if maps.ndim == 4:
        _check_map(min(maps.shape[-2:]), config, size)
    return int(maps.shape[1])


def _check_map(edge: int, config: EncoderConfig, size: tuple[int, int]) -> None:
    """In a map of one pixel every channel is in the same place."""
    if edge < 2 and config.pooling == "spatial_softmax":
        got = f"pictures of {size[0]} x {size[1]} px, of which its map is {edge} px"
        raise BadInput(f"--encoder {config.kind}", got=got, expected="a larger --encoder-size, or --pooling mean")


def _architecture(config: EncoderConfig, what: str) -> dict[str, Any]:
    try:
        found = json.loads(config.architecture)
        keys = {"centre", "scale", "channels"} | (
            {"config"} if config.kind.startswith("transformers") else {"name", "args"}
        )
        if not isinstance(found, dict) or not keys <= found.keys() or not 1 <= int(found["channels"]) <= 65_536:
            raise ValueError("incomplete")
    except (ValueError, TypeError) as error:
        raise BadInput(f"{what}: architecture", got=f"{str(error)[:80]}", expected="what training wrote") from None
    return found
