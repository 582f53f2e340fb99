"""The training of heads over a frozen encoder, for the one loop of `robolearn.runs.loop`: exactly resumable.

Pictures are encoded once, before the first step, in several views. A trainer is its data, and one gradient step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robolearn.core import BadInput, NonFinite
from robolearn.core.machine import torch_threads
from robolearn.core.specs import is_image
from robolearn.data import Dataset
from robolearn.rewards.classifier import SuccessClassifier
from robolearn.rewards.critic import ProgressCritic, save_critic
from robolearn.rewards.metrics import window_of
from robolearn.rewards.networks import PictureModel
from robolearn.rewards.preference import PreferenceReward
from robolearn.rewards.settings import ClassifierConfig, CriticConfig, HeadConfig, PreferenceRewardConfig
from robolearn.runs.checkpoint import pack_optimizer, unpack_optimizer

LEAST_SPREAD = 1e-3  # of a component that never changes, in its own unit

Config = TypeVar("Config", CriticConfig, ClassifierConfig, PreferenceRewardConfig)
Model = TypeVar("Model", ProgressCritic, SuccessClassifier, PreferenceReward)


class HeadTrainer(ABC, Generic[Config, Model]):
    """Heads in training.

    Args:
      datasets: of one arm and the same cameras.
      cameras: picture features to look at; by default all that every set has, or those that `config` observes.
      pretrained: put the weights of ImageNet into the encoder (extra ``vision``).
      progress: called with the number of encoded frames and of all.

    Attributes:
      critic: the model, encoder included.
      heads: of it, which are learned by `optimizer`.
      done: iterations so far.

    Raises:
      BadInput: data that this model cannot learn from, no picture where it needs some, or an extra that is not there.
    """

    config: Config
    critic: Model
    done: int = 0

    def __init__(
        self,
        config: Config,
        datasets: Sequence[Dataset],
        *,
        cameras: Sequence[str] = (),
        pretrained: bool = True,
        device: str = "cpu",
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.config, self.device = config, torch.device(device)
        make = self._model(datasets, cameras)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.critic = make()
        if pretrained and self.critic.cameras:
            self.critic.encoder.load_pretrained()
        self.critic.to(self.device)
        self._arrange(datasets)
        self._maps = encoded(self.critic, datasets, config, self.device, progress)
        trained = [p for p in self.heads.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=config.lr, weight_decay=config.weight_decay)

    @abstractmethod
    def _model(self, datasets: Sequence[Dataset], cameras: Sequence[str]) -> Callable[[], Model]:
        """Makes the model, untrained; everything random of it is drawn in there."""

    @abstractmethod
    def _arrange(self, datasets: Sequence[Dataset]) -> None:
        """Prepare what is drawn from; what cannot be learned from is refused before pictures are encoded."""

    @property
    @abstractmethod
    def heads(self) -> nn.Module:
        """The part of the model that is learned."""

    @property
    def iterations(self) -> int:
        """See `robolearn.runs.loop.Trainer`."""
        return self.config.iterations

    def iterate(self, i: int) -> dict[str, float]:
        """Iteration `i`: `steps_per_iteration` gradient steps. Returns means over them. Raises `NonFinite`: the loss is
        NaN or infinite."""
        config = self.config
        first = i * config.steps_per_iteration
        count = min(config.steps_per_iteration, config.steps - first)
        sums: dict[str, float] = {}
        self.critic.train()
        with torch_threads(config.threads), torch.random.fork_rng(devices=[]):
            for step in range(first, first + count):
                for group in self.optimizer.param_groups:
                    group["lr"] = self._rate(step)
                for key, value in self._step(step).items():
                    sums[key] = sums.get(key, 0.0) + float(value)
        metrics = {key: value / count for key, value in sums.items()}
        if not math.isfinite(metrics["loss"]):
            raise NonFinite(f"{config.title}: the loss became {metrics['loss']} in iteration {i}")
        self.done = i + 1
        return metrics | {"gradient_steps": float(first + count)}

    @abstractmethod
    def _step(self, step: int) -> dict[str, Tensor]:
        """One gradient step; its losses, ``loss`` their sum."""

    def _rate(self, step: int) -> float:
        """The learning rate of a gradient step."""
        return self.config.lr

    def summary(self) -> dict[str, tuple[int, int]]:
        """Shares for the result of the command: of the episodes kept from training, each as (count, of how many)."""
        return {}

    def fitted(self) -> dict[str, float]:
        """Numbers for the result of the command that were fitted on the episodes kept from training."""
        return {}

    def counted(self) -> dict[str, Any]:
        """Counts for the result of the command, beside successes and failures."""
        return {}

    def export(self, path: Path) -> None:
        """Write the model as a checkpoint folder."""
        save_critic(self.critic, path)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iterations depend on."""
        optimizer, meta = pack_optimizer(self.optimizer)
        tensors = {f"critic.{key}": value for key, value in self.heads.state_dict().items()}
        tensors |= {f"optimizer.{key}": value for key, value in optimizer.items()}
        return {key: value.detach().clone() for key, value in tensors.items()}, {"done": self.done, "optimizer": meta}

    def load_state(self, tensors: dict[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Go on as if what `state` returned had just been reached."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v.clone() for k, v in tensors.items() if k.startswith(prefix)}

        self.heads.load_state_dict(part("critic."))
        unpack_optimizer(self.optimizer, part("optimizer."), meta["optimizer"])
        self.done = int(meta["done"])


def kept_of_each(group: NDArray, share: float, seed: int, least: int = 0) -> NDArray[np.bool_]:
    """(E,) true of a `share` of the episodes of each `group` (E,), `least` at least, but never of all of one."""
    rng, kept = np.random.default_rng(seed), np.zeros(len(group), bool)
    for one in np.unique(group)[::-1]:
        own = rng.permutation(np.flatnonzero(group == one))
        kept[own[: min(max(round(share * len(own)), least), len(own) - 1)]] = True
    return kept


def encoded(
    critic: PictureModel,
    datasets: Sequence[Dataset],
    config: HeadConfig,
    device: torch.device,
    progress: Callable[[int, int], None] | None,
) -> Tensor:
    """(views, N, C, 112, m, m) float16 of all frames of all sets, final observations included; (1, N, 0) of a model
    that looks at no camera."""
    frames = int(sum(lengths_of(dataset)[0].sum() for dataset in datasets))
    if not critic.cameras:
        return torch.zeros(1, frames, 0)
    views, seen, count = [], 0, config.views * frames
    with torch_threads(config.threads):
        for view in range(config.views):
            generator = torch.Generator(device).manual_seed(config.seed * 1_000_003 + view)
            parts = []
            for dataset in datasets:
                for e in range(dataset.episodes):
                    window = window_of(dataset.episode(e))
                    pictures = [window.observation[camera] for camera in critic.cameras]
                    parts.append(critic.encoder.encode(pictures, generator if view else None))
                    seen += len(pictures[0])
                    if progress is not None:
                        progress(seen, count)
            views.append(torch.cat(parts))
    return torch.stack(views)


def common_cameras(datasets: Sequence[Dataset], wanted: Sequence[str] = ()) -> dict[str, tuple[int, int]]:
    """Picture feature → (H, W) [px]: the `wanted` ones, or all that every set has, of one size everywhere. Raises
    `BadInput`: a set without one of them, with another size, or none at all."""
    if not datasets:
        raise BadInput("--data", got="nothing", expected="a data set, or several")
    found: dict[str, tuple[int, int]] = {}
    have = [
        {key: spec for key, spec in dataset.interface.observation.items() if is_image(spec)} for dataset in datasets
    ]
    names = list(wanted) or [key for key in have[0] if all(key in cameras for cameras in have)]
    for name in names:
        key = name if name.startswith("images.") else f"images.{name}"
        for dataset, cameras in zip(datasets, have, strict=True):
            if key not in cameras:
                raise BadInput(
                    f"data set {dataset.path}: {key}", got="no such camera", expected="it", available=cameras
                )
            height, width = (int(edge) for edge in cameras[key].shape[:2])
            if found.setdefault(key, (height, width)) != (height, width):
                got = f"{height} x {width} px"
                raise BadInput(f"data set {dataset.path}: {key}", got=got, expected="the size of the other sets")
    if not found:
        hint = "robolearn collect --cameras front wrist records some"
        raise BadInput(f"data set {datasets[0].path}", got="no camera", expected="pictures to look at", hint=hint)
    return found


def lengths_of(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(E,) observations of each episode of `dataset`, and whether the last one is that after the last action."""
    final = np.array([dataset.has_final(e) for e in range(dataset.episodes)], bool)
    return dataset.lengths + final, final
