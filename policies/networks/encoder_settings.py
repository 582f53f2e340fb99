"""How a policy looks at pictures: the settings of its camera encoders, and of what training does to the pictures.

Apart from the networks so that reading a command line does not load torch. A docstring below a field is its help.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Literal

import tyro

from robolearn.core import BadInput

OWN = ("cnn", "resnet18")  # begin with random weights
PRETRAINED = ("efficientnet_lite0",)  # with weights of a package
LIBRARIES = ("timm", "transformers")  # with those of a folder
POOLINGS = ("spatial_softmax", "mean")
LARGEST = 4_096  # pixels
FLAGS = {"kind": "encoder", "resize": "encoder-size", "freeze": "freeze-encoder", "share": "share-encoder"}


@dataclass(frozen=True)
class EncoderConfig:
    """The network from the pictures of a camera to a vector, and augmentation of what it is trained on."""

    kind: Annotated[str, tyro.conf.arg(name="encoder", metavar="NAME")] = "cnn"
    """cnn, three convolutions; resnet18, with group norm; efficientnet_lite0, with weights of ImageNet; timm:FOLDER or
    transformers:FOLDER, any backbone that one of the two libraries has saved there (DINOv2, SigLIP, ...)."""
    pooling: Literal["spatial_softmax", "mean"] = "spatial_softmax"
    """What is kept of a map of features: where each channel is active, or how much."""
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
        library, _, folder = self.kind.partition(":")
        if self.kind not in (*OWN, *PRETRAINED) and library not in LIBRARIES:
            available = (*OWN, *PRETRAINED, *(f"{name}:FOLDER" for name in LIBRARIES))
            raise BadInput("--encoder", got=self.kind, available=available)
        if library in LIBRARIES and not folder and not self.architecture:
            raise BadInput("--encoder", got=self.kind, expected=f"{library}:FOLDER, with the weights")
        if self.pooling not in POOLINGS:
            raise BadInput("--pooling", got=self.pooling, available=POOLINGS)
        if self.freeze and self.kind in OWN:
            expected = "one that is pretrained: efficientnet_lite0, timm:FOLDER or transformers:FOLDER"
            raise BadInput("--freeze-encoder", got=f"{self.kind}, which begins with random weights", expected=expected)
        for name, value in (("encoder-size", self.resize), ("random-crop", self.random_crop)):
            if not (value == 0 or 8 <= value <= LARGEST):
                raise BadInput(f"--{name}", got=value, expected=f"0, or 8 to {LARGEST} pixels")
        if not 0 <= self.random_shift <= LARGEST:
            raise BadInput("--random-shift", got=self.random_shift, expected=f"0 to {LARGEST} pixels")
        if not 0.0 <= self.colour_jitter <= 1.0:
            raise BadInput("--colour-jitter", got=self.colour_jitter, expected="0 to 1")

    def check_seen(self, features: Iterable[str]) -> None:
        """Raise `BadInput` where a setting is not the default's: the policy observes `features`, and no picture."""
        for field in fields(self):
            if getattr(self, field.name) != field.default:
                flag = FLAGS.get(field.name, field.name.replace("_", "-"))
                got = f"a policy that sees no picture, but {', '.join(features)}"
                raise BadInput(f"--{flag}", got=got, expected="a camera among what it observes")

    @property
    def augments(self) -> bool:
        """Whether training sees other pictures than those that are stored."""
        return bool(self.random_shift or self.random_crop or self.colour_jitter)
