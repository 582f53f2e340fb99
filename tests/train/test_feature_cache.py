"""Features of a frozen encoder, computed once: the same training as without, and an exact continuation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.networks.encoder_settings import EncoderConfig
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter, Windows
from robolearn.data.mixture import Mixture
from robolearn.train import feature_cache
from robolearn.train.distill import LabelledWindows
from robolearn.train.feature_cache import BLOCK, CachedFeatures
from robolearn.train.imitation import ImitationConfig, ImitationTrainer

pytestmark = pytest.mark.long

CAMERAS = ("images.front", "images.wrist")
PICTURE = ArraySpec((40, 40, 3), "uint8")
INTERFACE = Interface({"proprio": ArraySpec((2,))} | dict.fromkeys(CAMERAS, PICTURE), ArraySpec((2,)), 20.0)
FROZEN = EncoderConfig(kind="efficientnet_lite0", freeze=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four episodes of noise, of 30 to 42 frames."""
    folder = tmp_path_factory.mktemp("set") / "set"
    rng = np.random.default_rng(0)
    with EpisodeWriter(folder, INTERFACE) as writer:
        for e in range(4):
            n = 30 + 4 * e
            images = {key: rng.integers(0, 256, (n, 40, 40, 3), dtype=np.uint8) for key in CAMERAS}
            action = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
            proprio = rng.normal(size=(n, 2)).astype(np.float32)
            zeros = np.zeros(n, np.float32)
            writer.write(Episode({"proprio": proprio} | images, action, zeros, True, True, False, "go"))
    return folder


@pytest.fixture
def dataset(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    return Dataset.open(root)


def config(encoder: EncoderConfig = FROZEN, observe: int = 1, **settings: Any) -> ImitationConfig:
    network = NetworkConfig(width=16, depth=1, image_features=8, encoder=encoder)
    policy = FlowConfig(network=network, horizon=1, execute=1, observe=observe)
    return ImitationConfig(policy, steps=30, steps_per_iteration=2, batch=16, warmup=1, **settings)


def rows(trainer: ImitationTrainer, first: int, last: int) -> list[dict[str, float]]:
    return [trainer.iterate(i) for i in range(first, last)]


def mark(frames: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """In place of an encoder: the first pixel of each picture, which noise makes its own."""
    return {key: value[:, 0, 0].float() for key, value in frames.items()}


@pytest.mark.parametrize("observe", [1, 2])
@pytest.mark.parametrize("pooling", ["spatial_softmax", "mean"])
def test_training_is_the_same_with_and_without(dataset: Dataset, pooling: str, observe: int) -> None:
    encoder = replace(FROZEN, pooling=pooling)
    found = []
    for cache in (True, False):
        made = ImitationTrainer.of_dataset(config(encoder, observe, validation=0.25, cache_features=cache), dataset)
        assert isinstance(made.windows, CachedFeatures) == cache
        found.append(rows(made, 0, 3))
    for cached, plain in zip(*found, strict=True):
        assert cached.keys() == plain.keys() and "validation_loss" in cached
        assert cached == pytest.approx(plain, rel=2e-3, abs=1e-5)


def test_every_frame_is_encoded_once(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ImitationTrainer.of_dataset(config(), dataset)
    encoded: list[int] = []
    stored = made.net.encoder.stored
    monkeypatch.setattr(
        made.net.encoder, "stored", lambda key, frames: (encoded.append(len(frames)), stored(key, frames))[1]
    )
    rows(made, 0, 10)  # two epochs and more
    blocks = -(-dataset.frames // BLOCK)
    assert encoded == [BLOCK] * blocks * len(CAMERAS)


@pytest.mark.parametrize("observe", [1, 3])
def test_each_window_gets_its_own_frames(dataset: Dataset, observe: int) -> None:
    plain = Windows(dataset, observe, 1, episodes=[2, 0, 3])
    cached = CachedFeatures(plain, frozenset(CAMERAS), mark)
    index = cached.order(3, 0)
    for part in (index[:7], index[7:50], index):
        wanted, found = plain.gather(part), cached.gather(part)
        assert set(found.observation) == {"proprio", "images.front/stored", "images.wrist/stored"}
        for key in CAMERAS:
            assert torch.equal(found.observation[f"{key}/stored"], wanted.observation[key][:, :, 0, 0].float())
        assert torch.equal(found.observation["proprio"], wanted.observation["proprio"])
        assert torch.equal(found.action, wanted.action) and torch.equal(found.action_is_pad, wanted.action_is_pad)


def test_of_several_sets_too(dataset: Dataset) -> None:
    mixed = Mixture([Windows(dataset, 2, 1, episodes=[0, 1]), Windows(dataset, 2, 1, episodes=[3])], [0.4, 0.6])
    cached = CachedFeatures(mixed, frozenset(CAMERAS), mark)
    index = mixed.order(0, 1)
    wanted, found = mixed.gather(index), cached.gather(index)
    for key in CAMERAS:
        assert torch.equal(found.observation[f"{key}/stored"], wanted.observation[key][:, :, 0, 0].float())


def test_windows_that_grow_keep_their_features(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = LabelledWindows(INTERFACE, 1, 150)
    rng = np.random.default_rng(0)

    def add(n: int) -> None:
        shown = {key: rng.integers(0, 256, (n, 40, 40, 3), dtype=np.uint8) for key in CAMERAS}
        windows.add({"proprio": np.zeros((n, 2), np.float32)} | shown, np.zeros((n, 1, 2), np.float32))

    add(40)
    cached = CachedFeatures(windows, frozenset(CAMERAS), mark, windows.capacity)
    for more in (60, 50, 0):
        index = torch.arange(len(windows))
        wanted, found = windows.gather(index), cached.gather(index)
        for key in CAMERAS:
            assert torch.equal(found.observation[f"{key}/stored"], wanted.observation[key][:, :, 0, 0].float())
        add(more) if more else None


def test_a_resumed_run_repeats_an_uninterrupted_one_bit_for_bit(dataset: Dataset) -> None:
    """Also where augmentation draws, and nothing can be kept."""
    for encoder in (FROZEN, EncoderConfig(random_shift=3, random_crop=36, colour_jitter=0.2)):
        whole = ImitationTrainer.of_dataset(config(encoder, validation=0.25), dataset)
        expected = rows(whole, 0, 6)
        first = ImitationTrainer.of_dataset(config(encoder, validation=0.25), dataset)
        rows(first, 0, 3)
        second = ImitationTrainer.of_dataset(config(encoder, validation=0.25), dataset)
        second.load_state(*first.state())
        assert rows(second, 3, 6) == expected[3:]
        a, b = whole.state()[0], second.state()[0]
        assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_features_are_of_the_weights_that_the_state_has(dataset: Dataset) -> None:
    """Whatever the package or the folder holds by the time that a run is resumed."""
    first, second = (ImitationTrainer.of_dataset(config(validation=0.25), dataset) for _ in range(2))
    rows(first, 0, 1)
    rows(second, 0, 1)
    tensors, meta = first.state()
    other = {k: 1.5 * v if "backbone.stem.0" in k else v for k, v in tensors.items()}
    second.load_state(other, meta)
    third = ImitationTrainer.of_dataset(config(validation=0.25, cache_features=False), dataset)
    third.load_state(other, meta)
    assert rows(second, 1, 2)[0] == pytest.approx(rows(third, 1, 2)[0], rel=2e-3)


def test_augmentation_changes_training_alone(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, changed = (
        ImitationTrainer.of_dataset(config(EncoderConfig(random_shift=shift), validation=0.25), dataset)
        for shift in (0, 4)
    )
    assert plain._validate() == changed._validate()
    assert plain.iterate(0)["loss"] != changed.iterate(0)["loss"]
    frozen = ImitationTrainer.of_dataset(config(replace(FROZEN, random_shift=2)), dataset)
    assert not isinstance(frozen.windows, CachedFeatures)  # every epoch shows other pictures
    assert not isinstance(ImitationTrainer.of_dataset(config(EncoderConfig()), dataset).windows, CachedFeatures)


def test_pictures_stay_bytes_until_the_minibatch(dataset: Dataset) -> None:
    made = ImitationTrainer.of_dataset(config(EncoderConfig(random_shift=2)), dataset)
    batch = made.windows.gather(torch.arange(4))
    assert all(batch.observation[key].dtype == torch.uint8 for key in CAMERAS)


def test_what_does_not_fit_is_encoded_anew(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feature_cache, "available_memory", lambda: 1_000_000)
    made = ImitationTrainer.of_dataset(config(), dataset)
    assert not isinstance(made.windows, CachedFeatures)
    assert "features of all frames would take 0.0 GB" in caplog.text and "encoded anew" in caplog.text


def test_only_what_follows_the_backbone_learns(dataset: Dataset) -> None:
    made = ImitationTrainer.of_dataset(config(), dataset)
    before = {key: value.clone() for key, value in made.net.state_dict().items()}
    rows(made, 0, 2)
    after, averaged = made.net.state_dict(), made.ema.module.state_dict()
    for key, value in before.items():
        frozen = "backbone" in key
        if frozen:
            assert torch.equal(after[key], value) and torch.equal(averaged[key], value), key
    assert not torch.equal(
        after["encoder.cameras.images/front.reduce.weight"], before["encoder.cameras.images/front.reduce.weight"]
    )


@pytest.mark.parametrize("hindsight", ["end", "later"])
def test_goals_are_kept_as_the_frames_that_they_are(dataset: Dataset, hindsight: Any) -> None:
    """Of a camera that the policy does not see otherwise: its frozen encoder is asked once for each frame."""
    aimed, found = dataset.aiming(CAMERAS[:1], ("proprio", CAMERAS[1])), []
    for cache in (True, False):
        made = ImitationTrainer.of_dataset(config(observe=2, cache_features=cache, hindsight=hindsight), aimed)
        made.windows.order(0, 0)
        batch = made.windows.gather(torch.tensor([0, 40]))
        assert ("goal.images.front/stored" in batch.observation) == cache
        assert ("goal.images.front" in batch.observation) != cache
        found.append(rows(made, 0, 3))
    for kept, anew in zip(*found, strict=True):
        assert kept["loss"] == pytest.approx(anew["loss"], abs=1e-5)
