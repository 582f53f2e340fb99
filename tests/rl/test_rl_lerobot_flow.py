"""SmolVLA as the base of RL: a double of LeRobot's network, whose arithmetic is done by hand.

tokens = (p, 3 p) of a picture whose pixels are all p, resized to 2 p − 1 as LeRobot does
v      = state_1 + Σ over cameras that count (1 + first components of tokens) + number of words + noise of the padding
chunk  = x_0 + v,  action = chunk / 4
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from policies.kinds.gaussian import NoiseSteeredConfig, NoiseSteeredPolicy
from policies.storage import lerobot_base
from policies.storage.checkpoint import load_policy, save_policy
from policies.storage.lerobot_base import open_base
from policies.storage.lerobot_files import PolicyFiles
from policies.storage.lerobot_policy import LeRobotPolicy
from policies.storage.loading import check_words, load_base
from policies.wrappers.prompted import set_prompt
from robolearn.core import BadInput, Interface
from robolearn.io.hashes import sha256_weights

STATE, FRONT, EMPTY = "observation.state", "observation.images.front", "observation.images.empty_camera_0"
TOLD = {"control_hz": 20.0, "embodiment": "panda", "action_kind": "tcp_delta", "action": {"names": ["dx"]}}
SEEN = {"proprio": np.array([[1.0, 3.0], [5.0, -1.0]], np.float32)}
SEEN |= {"images.front": np.full((2, 2, 4, 3), 255, np.uint8) * np.array([1, 0], np.uint8)[:, None, None, None]}
SENTENCE = "lift it"  # two words


class Vlm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vision_model = nn.Linear(1, 1)
        self.vision_model.dtype = torch.float32  # type: ignore[assignment]
        self.pictures = 0

    def get_vlm_model(self) -> Vlm:
        return self

    def embed_image(self, image: Tensor) -> Tensor:
        self.pictures += len(image)
        p = image.mean((1, 2, 3))
        return torch.stack((p, 3 * p), 1)[..., None] * torch.tensor([1.0, 10.0])


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vlm_with_expert = Vlm()

    def sample_actions(
        self, images: list[Tensor], masks: list[Tensor], tokens: Tensor, counts: Tensor, state: Tensor, noise: Tensor
    ) -> Tensor:
        assert len({len(one) for one in (*images, *masks, tokens, counts, state, noise)}) == 1
        embed, v = self.vlm_with_expert.embed_image, state[:, 0] + counts.sum(1)
        for image, mask in zip(images, masks, strict=True):
            v = v + mask * (1 + embed(image)[:, :, 0].sum(1))
        return noise + v[:, None, None] + noise[:, :, 1:].sum(2, keepdim=True)


class Theirs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Flow()
        picture = SimpleNamespace(shape=(3, 2, 4), type=SimpleNamespace(name="VISUAL"))
        state, action = (SimpleNamespace(shape=(n,), type=SimpleNamespace(name="STATE")) for n in (2, 1))
        pictures = {FRONT: picture, EMPTY: picture}
        self.config = SimpleNamespace(
            type="smolvla", input_features={STATE: state, **pictures}, output_features={"action": action},
            image_features=pictures, chunk_size=4, n_action_steps=2, max_action_dim=3, action_feature=action,
            robot_state_feature=state, n_obs_steps=1, env_state_feature=None,
        )  # fmt: skip

    def prepare_images(self, batch: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return [value * 2 - 1 for value in batch.values()], []

    def prepare_state(self, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.pad(batch[STATE], (0, 3))


def preprocessed(batch: dict[str, Any]) -> dict[str, Any]:
    found = {key: (value - 1) / 2 if key == STATE else value for key, value in batch.items()}
    count = len(batch["task"][0].split())
    assert isinstance(batch["task"], list)
    tokens = torch.ones(1, 5, dtype=torch.long)
    return found | {
        "observation.language.tokens": tokens,
        "observation.language.attention_mask": tokens.cumsum(1) <= count,
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of a policy, which the double answers for."""
    made = tmp_path / "theirs"
    made.mkdir()
    stored = {f"observation.state.{name}": torch.full((2,), value) for name, value in (("mean", 1.0), ("std", 4.0))}
    save_file(
        stored | {"action.min": torch.tensor([-1.0]), "action.max": torch.tensor([1.0])}, made / "stats.safetensors"
    )
    steps = [{"registry_name": "normalizer_processor", "state_file": "stats.safetensors"}]
    (made / "policy_preprocessor.json").write_text(json.dumps({"steps": steps}))
    (made / "robolearn.json").write_text(json.dumps(TOLD))
    monkeypatch.setattr(lerobot_base, "read_policy", lambda path: opened(Path(path)))
    return made


def opened(folder: Path) -> PolicyFiles:
    return PolicyFiles(folder, Theirs(), preprocessed, lambda action: action / 4.0, TOLD)


def test_noise_with_its_padding_becomes_a_chunk_without(folder: Path) -> None:
    """State 0 and 2, one camera, tokens 1 + 3 and −1 − 3, two words, padding 0.5 + 0.25, and its noise of 0.5."""
    base = open_base(str(folder), words=lambda: SENTENCE)
    assert base.net.noise_shape == (4, 3) and base.interface.action.size == 1 and base.execute_steps == 2
    assert set(base.interface.observation) == {"proprio", "images.front"}, "nobody has an empty camera"
    normal = base.normalizer.observation({key: torch.tensor(value) for key, value in SEEN.items()})
    noise = torch.tensor([0.5, 0.5, 0.25]).expand(2, 4, 3)
    chunk = base.net.sample(base.net.encode(normal), noise)
    torch.testing.assert_close(chunk, torch.tensor([[[8.25]], [[2.25]]]).expand(2, 4, 1))
    torch.testing.assert_close(base.normalizer.action_back(chunk)[:, 0, 0], torch.tensor([1.0, 0.5625]))


def test_critics_see_the_mean_of_tokens_and_sampling_all_of_them(folder: Path) -> None:
    base = open_base(str(folder), words=lambda: SENTENCE)
    policy = NoiseSteeredPolicy(base, NoiseSteeredConfig(execute=2, width=8))
    encoded = policy.encoded({key: torch.tensor(value) for key, value in SEEN.items()})
    torch.testing.assert_close(encoded["images.front/seen"], torch.tensor([[1.0, 10, 3, 30], [-1, -10, -3, -30]]))
    assert base.net.encoder.encoded_specs["images.front/seen"].shape == (4,) and policy.feature_size == 4
    torch.testing.assert_close(policy.encode(encoded)[:, :2], torch.tensor([[2.0, 20], [-2, -20]]))
    assert policy.latent == 4 * 3
    x0 = torch.zeros(2, 12)
    torch.testing.assert_close(policy.chunk(encoded, x0), torch.tensor([[1.0, 1.0], [0.25, 0.25]]))


def test_many_samples_share_one_look_and_their_words(folder: Path) -> None:
    policy = LeRobotPolicy(opened(folder))
    with pytest.raises(BadInput, match="words: missing; expected a sentence before the policy acts"):
        policy.act(SEEN)
    set_prompt(policy, "", SENTENCE)
    assert policy.sentence == SENTENCE
    files = opened(folder)
    policy = LeRobotPolicy(files)
    set_prompt(policy, SENTENCE)
    before = files.net.model.vlm_with_expert.pictures
    found = policy.act_samples(SEEN, 3)
    assert found.shape == (2, 3, 4, 1) and files.net.model.vlm_with_expert.pictures == before + 2
    assert np.ptp(found[1], axis=0).max() > 0.01
    other = LeRobotPolicy(opened(folder))
    set_prompt(other, SENTENCE)
    np.testing.assert_array_equal(
        other.act({key: value.repeat(3, 0) for key, value in SEEN.items()}), found.reshape(6, 4, 1)
    )


def test_a_checkpoint_keeps_the_words_and_no_weights(folder: Path) -> None:
    policy = NoiseSteeredPolicy(open_base(str(folder), words=lambda: SENTENCE), NoiseSteeredConfig(execute=2, width=8))
    before = sha256_weights(policy)
    loaded = load_policy(save_policy(policy, folder.parent / "steered"))
    assert isinstance(loaded, NoiseSteeredPolicy) and loaded.proposer.config.words == SENTENCE
    assert sha256_weights(loaded) == before and not any("vlm" in name for name in loaded.state_dict())
    np.testing.assert_array_equal(loaded.act(SEEN), policy.act(SEEN))


def test_words_are_asked_for_where_they_are_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="words: missing; expected the task in a sentence"):
        open_base(str(folder))
    assert load_base(f"lerobot:{folder}", "cpu", sampled=True, words=lambda: SENTENCE).config.words == SENTENCE
    policy = LeRobotPolicy(opened(folder))
    assert check_words("lerobot:x", "", SENTENCE, what="policy", opened=policy) == SENTENCE
    assert check_words("lerobot:x", "now", SENTENCE, what="policy", opened=policy) == "now"
    with pytest.raises(BadInput, match="policy: words: missing; expected a sentence"):
        check_words("lerobot:x", "", "", what="policy", opened=policy)
    assert isinstance(policy.interface, Interface)


class Steps(list[Any]):
    """A preprocessor that can be cut, as LeRobot's: normalisation, and then the state in the words."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        for step in self:
            batch = step(batch)
        return batch

    def __getitem__(self, place: Any) -> Any:
        return Steps(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)


def in_words(batch: dict[str, Any]) -> dict[str, Any]:
    """As many words as the sentence has, and as the first component of the normalised state says."""
    assert len(batch["task"]) == len(batch[STATE])
    counts = torch.tensor([len(text.split()) for text in batch["task"]]) + batch[STATE][:, 0].long()
    tokens = torch.ones(len(counts), 9, dtype=torch.long)
    told = {"tokens": tokens, "attention_mask": tokens.cumsum(1) <= counts[:, None]}
    return batch | {f"observation.language.{name}": value for name, value in told.items()}


def test_a_state_that_is_read_as_words_is_read_anew(folder: Path) -> None:
    """Two words of the sentence, and as many as the normalised state says: 0 and 2, then 3."""
    stated = json.loads((folder / "policy_preprocessor.json").read_text())
    stated["steps"].append({"registry_name": "pi05_prepare_state_tokenizer_processor_step"})
    (folder / "policy_preprocessor.json").write_text(json.dumps(stated))
    files = opened(folder)
    files.net.config.type = "pi05"
    both = Steps([lambda batch: batch | {STATE: (batch[STATE] - 1) / 2}, in_words])
    words = PolicyFiles(folder, files.net, both, files.post, TOLD).words(SENTENCE)
    for state, counts in (([[0.0, 9.0], [2.0, 9.0]], [2, 4]), ([[3.0, 9.0]], [5])):
        found = words(torch.tensor(state))
        assert found["attention_mask"].sum(1).tolist() == counts
