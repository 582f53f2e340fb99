"""Imitation of demonstrations: one step of supervised learning after the other, exactly resumable.

The loop, the files and the progress bar are those of `robolearn.runs`; which loss, the policy knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.networks.augment import augment
from policies.networks.ema import Ema
from policies.networks.encoder_settings import EncoderConfig
from policies.normalize import Normalizer, Statistics
from policies.policy import ChunkPolicy
from policies.registry import fresh_net
from policies.storage.checkpoint import save_policy
from robolearn.core import BadInput, Interface, NonFinite
from robolearn.core.machine import torch_threads
from robolearn.core.specs import check_compatible, is_goal, is_image, of_goal
from robolearn.data import Dataset, Windows
from robolearn.data.mixture import Mixture, check_alike, drawn_statistics
from robolearn.data.windows import HindsightWindows, TrainingBatch, Weights
from robolearn.runs.checkpoint import pack_optimizer, unpack_optimizer
from robolearn.train.feature_cache import CachedFeatures, FrameSource
from robolearn.train.processes import TrainingProcesses, gradient_in_pieces
from robolearn.train.settings import ImitationConfig, Precision

VALIDATION_WINDOWS = 512  # of the validation episodes, the same ones every time


def learning_rate(config: ImitationConfig, step: int) -> float:
    """The learning rate of a gradient step, counted from 0."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    # lr = lr_final + (lr_0 − lr_final) (1 + cos π s) / 2,  s ∈ [0, 1] after the warm-up
    s = min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
    return config.lr_final + (config.lr - config.lr_final) * 0.5 * (1.0 + math.cos(math.pi * s))


class ImitationTrainer:
    """A trainer for `robolearn.runs.run_loop`: no loop, no clock, no files but `export`.

    All randomness is a function of (seed, iteration), the data's order one of (seed, epoch): the state is
    weights, averaged weights, optimiser and a counter, and a resumed run repeats an uninterrupted one bit
    for bit on the CPU.

    Attributes:
      config: with the number of windows of a batch, given or not.
      net: the network being trained, on normalised tensors.
      ema: its moving average, what `export` writes and what makes a shortcut model's targets.
      normalizer: fixed by the dataset's statistics.
      together: the processes that take each batch with this one, or None.

    Args:
      capacity: windows that `windows` can grow to.

    Raises:
      BadInput: no windows, or statistics that do not fit the interface.
    """

    def __init__(
        self, config: ImitationConfig, windows: FrameSource, interface: Interface, statistics: Statistics, *,
        validation: FrameSource | None = None, device: str | torch.device = "cpu", capacity: int = 0,
    ) -> None:  # fmt: skip
        if len(windows) < 1:
            raise BadInput("training windows", got="nothing", expected="at least one")
        config = config.of_size(pictures=any(is_image(spec) for spec in interface.observation.values()))
        self.config, self.interface = config, interface
        self.device = torch.device(device)
        by_quantiles = config.normalise == "quantiles"
        self.normalizer = Normalizer.from_statistics(interface, statistics, quantiles=by_quantiles).to(self.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.net: Any = fresh_net(config.policy, interface).to(self.device)
        self.ema: Ema[Any] = Ema(self.net, config.ema)
        trained = [parameter for parameter in self.net.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=config.lr, weight_decay=config.weight_decay, fused=True)
        self._autocast = _autocast(config.precision, self.device)
        if config.accumulate > 1 and not self.net.loss_has_parts:
            raise BadInput("--accumulate", got=f"{config.accumulate} of a policy of kind {self.net.name}", expected="1")
        self.together: TrainingProcesses | None = None
        self.done = self.steps = 0
        self._generator, self._augmenting = torch.Generator(self.device), torch.Generator(self.device)
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)
        self._encoder: EncoderConfig = self.net.config.network.encoder
        self._caches: list[CachedFeatures] = []
        self.windows = self._remembered(windows, capacity)
        self._held = None if validation is None or not len(validation) else self._remembered(validation)
        self._validation: tuple[dict[str, Tensor], Tensor, Tensor] | None = None

    @staticmethod
    def of_dataset(
        config: ImitationConfig,
        dataset: Dataset,
        device: str | torch.device = "cpu",
        *,
        weights: Weights | None = None,
    ) -> ImitationTrainer:
        """A trainer on the episodes of `dataset`, some of them held out if the configuration says so.

        Args:
          weights: of episodes, or of the frames of each, how often frames are drawn relative to others; by default
            every window comes once per epoch.

        Raises:
          BadInput: too few episodes, or none with a weight among those for training.
        """
        part = Part.of(config, dataset, weights, device)
        statistics = dataset.statistics(part.episodes)
        return ImitationTrainer(config, part.train, dataset.interface, statistics, validation=part.held, device=device)

    @staticmethod
    def of_mixture(
        config: ImitationConfig, datasets: Sequence[Dataset], shares: Sequence[float],
        device: str | torch.device = "cpu", *, weights: Sequence[Weights | None] | None = None,
    ) -> ImitationTrainer:  # fmt: skip
        """A trainer on several data sets, `shares` of whose windows are drawn; validation windows are mixed alike.

        Observations and actions are normalised by the statistics of what is drawn, by share and by weight (see
        `drawn_statistics`). One data set alone (`of_dataset`) is normalised by all its training frames alike.

        Args:
          shares: one for each set, as `robolearn.data.mixture.shares_of` makes them.
          weights: of each set, None or as in `of_dataset`.

        Raises:
          BadInput: sets that do not fit each other, too few episodes in one of them, or none with a weight among those
            for training.
        """
        check_alike(datasets)
        parts = [
            Part.of(config, dataset, own, device)
            for dataset, own in zip(datasets, weights or [None] * len(datasets), strict=True)
        ]
        held = [part.held for part in parts if part.held is not None]
        return ImitationTrainer(
            config,
            Mixture([part.train for part in parts], shares),
            datasets[0].interface,
            drawn_statistics(datasets, [part.episodes for part in parts], shares, [part.weights for part in parts]),
            validation=Mixture(held, shares) if held else None,
            device=device,
        )

    def begin_from(self, policy: ChunkPolicy) -> None:
        """Begin with the weights and the normalisation of `policy` in place of random ones: before `iterate`. Raises
        `BadInput`: it is of another kind, sees or does something else, or has other settings."""
        offered, needed = policy.interface, self.interface
        check_compatible(offered, needed, what="--from, the data", subject="the policy")
        what = "--from: what the policy sees and does"
        if (offered.observation, offered.action) != (needed.observation, needed.action):
            raise BadInput(what, got=f"{_spoken(offered)} in the policy", expected=f"{_spoken(needed)}, as in the data")
        if policy.net.config != self.net.config:
            raise BadInput("--from: settings of the policy", got=policy.net.config, expected=self.net.config)
        for net in (self.net, self.ema.module):
            net.load_state_dict(policy.net.state_dict())
        self.normalizer.load_state_dict(policy.normalizer.state_dict())
        self._forget_encodings()

    @property
    def iterations(self) -> int:
        left = max(self.config.steps - self.steps, 0)
        return self.done + -(-left // self.config.steps_per_iteration)

    def iterate(self, i: int) -> dict[str, float]:
        """Iteration `i`: `steps_per_iteration` gradient steps, in the last one what is left. Returns means over them.
        Raises `NonFinite`: the loss is NaN or infinite."""
        config = self.config
        first, count = self.steps, min(config.steps_per_iteration, config.steps - self.steps)
        sums: dict[str, Tensor] = {}
        self._generator.manual_seed(_mix(config.seed, i))
        # Of its own: processes draw other numbers of these, and the same noise.
        self._augmenting.manual_seed(_mix(config.seed, i, 1 + (self.together.rank if self.together else 0)))
        with torch_threads(config.threads):
            for step in range(first, first + count):
                for key, value in self._step(step).items():
                    sums[key] = sums[key] + value if key in sums else value
            metrics = {key: float(value) / count for key, value in sums.items()}
            if not math.isfinite(metrics["loss"]):
                raise NonFinite(f"imitation: the loss became {metrics['loss']} in iteration {i}")
            metrics |= self._validate()
        self.done, self.steps = i + 1, first + count
        steps = {"gradient_steps": float(self.steps)}
        return metrics | steps | {"lr": learning_rate(config, first), "epoch": float(self._epoch)}

    def _step(self, step: int) -> dict[str, Tensor]:
        """One gradient step; named scalars."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, step)
        self.optimizer.zero_grad(set_to_none=True)
        parts = self._gradient(self._indices(step))
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.config.grad_clip)
        self.optimizer.step()
        self.ema.update(self.net)
        return parts | {"grad_norm": norm}

    def _gradient(self, index: Tensor) -> dict[str, Tensor]:
        """Leave the gradient of the loss of the windows `index` in the parameters; named scalars."""
        target = self.ema.module
        if self.config.accumulate == 1 and self.together is None:
            with self._autocast:
                loss, parts = self.net.loss(*self._gather(index), self._generator, target)
            loss.backward()
            return parts
        return gradient_in_pieces(
            self.net, self._gather, index, self._generator, target,
            pieces=self.config.accumulate, autocast=self._autocast, together=self.together,
        )  # fmt: skip

    def _gather(self, index: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        observation, action, is_pad = self._normalised(self.windows.gather(index))
        return augment(observation, self.normalizer.images, self._encoder, self._augmenting), action, is_pad

    def _indices(self, step: int) -> Tensor:
        """The windows of a gradient step: batch after batch through the orders of the epochs."""
        epoch, batch = divmod(step, -(-len(self.windows) // self.config.windows))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self.windows.order(self.config.seed, epoch)
        return self._order[batch * self.config.windows : (batch + 1) * self.config.windows]

    def forget_order(self) -> None:
        """There are more windows than before: the running epoch begins anew."""
        self._epoch = -1

    def _forget_encodings(self) -> None:
        """The encoder may have other weights."""
        for cache in self._caches:
            cache.forget()
        self._validation = None

    def _remembered(self, source: Any, capacity: int = 0) -> Any:
        """`source`, with what a frozen encoder makes of its pictures kept, where that can be, and with its goals."""
        if self.config.cache_features and self.net.encoder.frozen and not self._encoder.augments:
            images = frozenset(of_goal(key) for key in self.normalizer.images)
            if CachedFeatures.fits(source, images, self._encode, capacity):
                source = CachedFeatures(source, images, self._encode, capacity)
                self._caches.append(source)
        goals = tuple(key for key in self.interface.observation if is_goal(key))
        if not goals:
            return source
        images = self.normalizer.images
        looks = any(not is_goal(key) for key in images)
        return HindsightWindows(
            source, goals, self.config.hindsight, looks=looks, shows=any(is_goal(key) for key in images)
        )

    @torch.no_grad()
    def _encode(self, pictures: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Camera → (n, H, W, c) uint8, to what the frozen encoder makes of them."""
        seen = {key: self.normalizer.picture(value.to(self.device)) for key, value in pictures.items()}
        return {key: self.net.encoder.stored(key, value) for key, value in seen.items()}

    def _normalised(self, batch: TrainingBatch) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        observation = {key: value.to(self.device) for key, value in batch.observation.items()}
        action = self.normalizer.action(batch.action.to(self.device))
        return self.normalizer.observation(observation), action, batch.action_is_pad.to(self.device)

    def _validate(self) -> dict[str, float]:
        """The loss of the averaged weights on held-out windows, with the same noise every time."""
        if self._held is None:
            return {}
        if self._validation is None:
            self._validation = self._normalised(self._held.gather(self._held.order(0, 0)[:VALIDATION_WINDOWS]))
        observation, action, is_pad = self._validation
        generator = torch.Generator(self.device).manual_seed(0)
        with torch.no_grad():
            loss, _ = self.ema.module.loss(observation, action, is_pad, generator)
        return {"validation_loss": float(loss)}

    def policy(self) -> ChunkPolicy:
        """The policy with the averaged weights; shares them with the trainer."""
        return ChunkPolicy(self.ema.module, self.normalizer, self.interface).eval()

    def export(self, path: Path) -> None:
        """Write `policy` as a checkpoint folder."""
        save_policy(self.policy(), path)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iterations depend on."""
        tensors = {f"net.{key}": value for key, value in self.net.state_dict().items()}
        tensors |= {f"ema.{key}": value for key, value in self.ema.module.state_dict().items()}
        optimizer, meta = pack_optimizer(self.optimizer)
        tensors |= {f"optimizer.{key}": value for key, value in optimizer.items()}
        tensors = {key: value.detach().clone() for key, value in tensors.items()}
        return tensors, {"done": self.done, "steps": self.steps, "ema_updates": self.ema.updates, "optimizer": meta}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Go on as if what `state` returned had just been reached."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

        self.net.load_state_dict(part("net."))
        self._forget_encodings()
        self.ema.module.load_state_dict(part("ema."))
        unpack_optimizer(self.optimizer, {k: v.clone() for k, v in part("optimizer.").items()}, meta["optimizer"])
        self.done, self.ema.updates = int(meta["done"]), int(meta["ema_updates"])
        self.steps = int(meta["steps"]) if "steps" in meta else self.done * self.config.steps_per_iteration


def _spoken(interface: Interface) -> str:
    """Observation and action of a policy, in short: ``proprio (18,), objects (6,) → action (7,)``."""
    sees = ", ".join(f"{name} {spec.shape}" for name, spec in interface.observation.items())
    return f"{sees} → action {interface.action.shape}"


def _autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """In what a loss is computed; bfloat16 has float32's range, so that no loss needs to be scaled."""
    mixed = precision == "bfloat16"
    if mixed and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name(device)
        raise BadInput("--precision", got=f"bfloat16 on {name}, which has none", available=["float32"])
    return torch.autocast(device.type, torch.bfloat16, enabled=mixed)


def _mix(*numbers: int) -> int:
    """One seed from several numbers, without the collisions of their sum."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def split_episodes(episodes: int, config: ImitationConfig) -> tuple[list[int], list[int]]:
    """Indices of the episodes (for training, for validation); at least one for training.

    Whole episodes, because neighbouring windows of one episode are almost copies of each other.
    """
    held = min(math.ceil(episodes * config.validation), episodes - 1)
    order = np.random.default_rng([config.seed, episodes]).permutation(episodes)
    return sorted(int(e) for e in order[held:]), sorted(int(e) for e in order[:held])


@dataclass(frozen=True)
class Part:
    """The windows of one data set that are trained on, and those held out; `weights` are of the `episodes`."""

    train: Windows
    held: Windows | None
    episodes: list[int]
    weights: Weights | None

    @staticmethod
    def of(config: ImitationConfig, dataset: Dataset, weights: Weights | None, device: str | torch.device) -> Part:
        least = 2 if config.validation else 1
        if dataset.episodes < least:
            raise BadInput(f"dataset {dataset.path}", got=f"{dataset.episodes} episodes", expected=f"at least {least}")
        train, held = split_episodes(dataset.episodes, config)
        chunk = config.policy.observe, config.policy.horizon
        own: Any = None if weights is None else [weights[e] for e in train]
        return Part(
            Windows(dataset, *chunk, episodes=train, weights=own, device=device),
            Windows(dataset, *chunk, episodes=held, device=device) if held else None,
            train,
            own,
        )
