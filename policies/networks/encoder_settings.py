"""Camera encoders: their settings, and the kinds there are, listed in `ENCODERS`.

No import of torch: `EncoderKind.build` loads it, so that a command line is read without. A docstring below a field is
its help.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from robolearn.core import BadInput, check_choice

if TYPE_CHECKING:
    from torch import Tensor, nn

Pooling = Literal["spatial_softmax", "mean"]
LARGEST = 4_096  # pixels
FLAGS = {"kind": "encoder", "resize": "encoder-size", "freeze": "freeze-encoder", "share": "share-encoder"}
Size = tuple[int, int]
"""(H, W) of a picture [px]"""


def _hint(default: str) -> str:
    return f"(default: {default}; available: {', '.join(usages())})"


EncoderName = Annotated[str, tyro.conf.arg(name="encoder", metavar="NAME", help_behavior_hint=_hint)]


@dataclass(frozen=True)
class EncoderConfig:
    """The network from the pictures of a camera to a vector, and augmentation of what it is trained on."""

    kind: EncoderName = "cnn"
    """cnn, three convolutions; resnet18, with group norm; efficientnet_lite0, with weights of ImageNet; timm:FOLDER or
    transformers:FOLDER, any backbone that one of the two libraries has saved there (DINOv2, SigLIP, ...)."""
    pooling: Pooling = "spatial_softmax"
    """Pooling of a map of features: where each channel is active, or how much."""
    resize: Annotated[int, tyro.conf.arg(name="encoder-size")] = 0
    """Edge [px] that pictures are brought to before the encoder; 0 for as they are."""
    freeze: Annotated[bool, tyro.conf.arg(name="freeze-encoder")] = False
    """Leave a pretrained backbone as it is, and train what follows it alone."""
    share: Annotated[bool, tyro.conf.arg(name="share-encoder")] = False
    """All cameras through the same weights; otherwise each has its own."""
    random_shift: int = 0
    """Shift the pictures of a batch by up to so many pixels (DrQ), in training."""
    random_crop: int = 0
    """Edge [px] of a part of the pictures: a random one in training, the middle when the policy acts; 0 for all."""
    colour_jitter: float = 0.0
    """Change brightness, contrast, saturation and hue by up to so much, in training; 0.3 is a good deal."""
    architecture: tyro.conf.Suppress[str] = ""
    """JSON: what a backbone of timm or transformers is built from when its folder is not there."""

    def __post_init__(self) -> None:
        name, _, folder = self.kind.partition(":")
        if name not in ENCODERS or (folder and not ENCODERS[name].in_folder):
            raise BadInput("--encoder", got=self.kind, available=usages())
        if ENCODERS[name].in_folder and not folder and not self.architecture:
            raise BadInput("--encoder", got=self.kind, expected=f"{name}:FOLDER, with the weights")
        check_choice("--pooling", self.pooling, Pooling)
        if self.freeze and not ENCODERS[name].pretrained:
            *most, last = usages(pretrained=True)
            expected = f"one that is pretrained: {', '.join(most)} or {last}"
            raise BadInput("--freeze-encoder", got=f"{self.kind}, which begins with random weights", expected=expected)
        for flag, value in (("encoder-size", self.resize), ("random-crop", self.random_crop)):
            if not (value == 0 or 8 <= value <= LARGEST):
                raise BadInput(f"--{flag}", got=value, expected=f"0, or 8 to {LARGEST} pixels")
        if not 0 <= self.random_shift <= LARGEST:
            raise BadInput("--random-shift", got=self.random_shift, expected=f"0 to {LARGEST} pixels")
        if not 0.0 <= self.colour_jitter <= 1.0:
            raise BadInput("--colour-jitter", got=self.colour_jitter, expected="0 to 1")

    @property
    def of_kind(self) -> EncoderKind:
        """The kind that `kind` names."""
        return ENCODERS[self.kind.partition(":")[0]]

    @property
    def folder(self) -> Path | None:
        """The folder that `kind` names, or None."""
        folder = self.kind.partition(":")[2]
        return Path(folder) if folder else None

    def check_seen(self, features: Iterable[str]) -> None:
        """Raise `BadInput` where a setting is not the default's: the policy observes `features`, and no image."""
        for field in fields(self):
            if getattr(self, field.name) != field.default:
                flag = FLAGS.get(field.name, field.name.replace("_", "-"))
                got = f"a policy without images, which observes {', '.join(features)}"
                raise BadInput(f"--{flag}", got=got, expected="a camera among what it observes")

    @property
    def augments(self) -> bool:
        """True where training changes the stored pictures."""
        return bool(self.random_shift or self.random_crop or self.colour_jitter)


class EncoderKind:
    """A kind of camera encoder. A new one is a subclass with `build`, or with `backbone`, listed in `ENCODERS`."""

    name: str  # of --encoder, and in config.json
    pretrained: ClassVar[bool] = False  # begins with the weights of a package or a folder, and may be frozen
    in_folder: ClassVar[bool] = False  # named as name:FOLDER
    any_channels: ClassVar[bool] = False  # takes other pictures than RGB
    stride: ClassVar[int] = 0  # pixels of a picture to one of its map; 0 where only the backbone itself says

    def build(self, channels: int, size: Size, features: int, config: EncoderConfig) -> nn.Module:
        """The encoder of pictures of (c, H, W) = (channels, *size), with random weights. Raises `BadInput`: one of RGB
        for other pictures, one of a folder that was not `resolved`, or pictures that are too small for a map."""
        if channels != 3 and not self.any_channels:
            raise BadInput(f"--encoder {config.kind}", got=f"pictures of {channels} channels", expected="3: RGB")
        if self.stride:
            check_map(-(-(config.resize or min(size)) // self.stride), config, size)
        return resolve_name("policies.networks.encoder:BackboneEncoder")(
            *self.backbone(channels, config), features, config
        )

    def backbone(
        self, channels: int, config: EncoderConfig
    ) -> tuple[nn.Module, int, tuple[float, ...], tuple[float, ...]]:
        """The network, the channels of its map, and the centre and scale of its pictures."""
        raise NotImplementedError

    def resolved(self, config: EncoderConfig, sizes: set[Size]) -> EncoderConfig:
        """`config` with the architecture in its folder; as it is where it names none.

        Args:
          sizes: of the pictures that it will get.

        Raises:
          BadInput: the folder is not one of the library's, or its backbone does not take such pictures.
        """
        return config

    def load_weights(self, backbones: list[nn.Module], folder: Path | None) -> None:
        """Put the pretrained weights, of a package or in `folder`, into `backbones` of one architecture. Raises
        `BadInput`: there are none, or they do not fit."""


class CnnKind(EncoderKind):
    name = "cnn"
    any_channels = True

    def build(self, channels: int, size: Size, features: int, config: EncoderConfig) -> nn.Module:
        if config.resize:
            expected = "another --encoder than cnn, or pictures of that size"
            raise BadInput("--encoder-size", got=config.resize, expected=expected)
        return resolve_name("policies.networks.encoder:SpatialCnn")(channels, features, config.pooling)


class ResNet18Kind(EncoderKind):
    name, any_channels, stride = "resnet18", True, 32

    def backbone(self, channels: int, config: EncoderConfig) -> tuple[nn.Module, int, Any, Any]:
        from policies.networks import backbones

        half = (0.5,) * channels
        return backbones.ResNet18(channels), backbones.RESNET_CHANNELS, half, half


class EfficientNetLite0Kind(EncoderKind):
    name, pretrained, stride = "efficientnet_lite0", True, 32

    def backbone(self, channels: int, config: EncoderConfig) -> tuple[nn.Module, int, Any, Any]:
        from policies.networks import backbones

        made = backbones.EfficientNetLite0()
        return made, backbones.CHANNELS, backbones.CENTRE, backbones.SCALE

    def load_weights(self, backbones: list[nn.Module], folder: Path | None) -> None:
        from policies.networks.backbones import pretrained_weights

        weights: dict[str, Tensor] = pretrained_weights()
        for backbone in backbones:
            backbone.load_state_dict(weights)


class LibraryKind(EncoderKind):
    """A backbone from a folder that a library has saved; see `policies.networks.libraries`."""

    pretrained, in_folder = True, True

    def __init__(self, name: str) -> None:
        self.name = name

    def backbone(self, channels: int, config: EncoderConfig) -> tuple[nn.Module, int, Any, Any]:
        libraries = resolve_name("policies.networks.libraries")
        what = f"encoder {config.kind}"
        architecture = libraries.stored_architecture(config, what)
        centre, scale = (tuple(float(v) for v in architecture[key]) for key in ("centre", "scale"))
        return libraries.build(self.name, architecture, what), int(architecture["channels"]), centre, scale

    def resolved(self, config: EncoderConfig, sizes: set[Size]) -> EncoderConfig:
        libraries = resolve_name("policies.networks.libraries")
        return libraries.resolved(config, sizes) if config.folder and sizes else config

    def load_weights(self, backbones: list[nn.Module], folder: Path | None) -> None:
        libraries = resolve_name("policies.networks.libraries")
        if folder is not None:
            libraries.read_weights(self.name, folder, backbones[0])
            for backbone in backbones[1:]:
                backbone.load_state_dict(backbones[0].state_dict())


_KINDS = (CnnKind(), ResNet18Kind(), EfficientNetLite0Kind(), LibraryKind("timm"), LibraryKind("transformers"))
ENCODERS: dict[str, EncoderKind] = {kind.name: kind for kind in _KINDS}


def usages(*, pretrained: bool = False) -> list[str]:
    """The values that --encoder takes, or those of `pretrained` encoders alone."""
    return [
        f"{name}:FOLDER" if kind.in_folder else name
        for name, kind in ENCODERS.items()
        if kind.pretrained or not pretrained
    ]


def check_map(edge: int, config: EncoderConfig, size: Size) -> None:
    """Raise `BadInput` for a spatial softmax over a map of one pixel, where every channel is in the same place."""
    if edge < 2 and config.pooling == "spatial_softmax":
        got = f"pictures of {size[0]} x {size[1]} px, of which its map is {edge} px"
        raise BadInput(f"--encoder {config.kind}", got=got, expected="a larger --encoder-size, or --pooling mean")
