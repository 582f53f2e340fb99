"""Vision-language critics on tiny models of the real classes. What they have to say is worked out from the same weights
by other means: whole models of transformers, one row at a time, softmax and heads by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from robolearn.core import ArraySpec, BadInput, Interface, RewardModel, RewardWithheld, Window
from robolearn.rewards.choice import make_reward, reward_config
from robolearn.rewards.stored import model_name
from robolearn.rewards.vla.critic import Question
from robolearn.rewards.vla.frames import FrameScores, SampledFrames, score_of
from robolearn.rewards.vla.robometer import fitted

sys.path.insert(0, str(Path(__file__).parent))
import tiny_vlms as tiny
from tiny_vlms import CAMERA, INTERFACE, OTHER, TASK, window

Folders = dict[str, Path]
QWEN = "Qwen3VLForConditionalGeneration"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """name → a folder with a tiny model."""
    root = tmp_path_factory.mktemp("vlms")
    found = {name: root / name for name in ("qwen", "robometer", "lerobot")}
    tiny.qwen(found["qwen"])
    tiny.robometer(found["robometer"], found["qwen"])
    tiny.robometer(found["lerobot"], found["qwen"], lerobot=True)
    return found


def made(text: str) -> Any:
    """The critic that ``--reward TEXT`` names."""
    return make_reward(text, INTERFACE)


@pytest.mark.long
def test_topreward_is_the_probability_of_true_after_each_beginning(folders: Folders) -> None:
    """Each beginning alone, over the whole of the logits in double."""
    critic = made(f"topreward:{folders['qwen']},frames=5,prefixes=3")
    assert issubclass(type(critic), RewardModel)
    episode = window(9)
    (score,) = critic.score([episode], [TASK])
    model, words = tiny.loaded(QWEN, folders["qwen"]), critic.processor.tokenizer
    seen = episode.observation[CAMERA][[0, 2, 4, 6, 8]]
    said = "The video above is of a robot arm that brings this task to its end: "
    text = f"<|im_start|>user\n<|video_pad|>{said}{TASK}. Is this statement True or False? The answer is: True"
    expected = []
    for count in (1, 3, 5):
        shown = seen[[0, 0]] if count == 1 else seen[:count]
        facts = {"total_num_frames": len(shown), "fps": 2.0, "frames_indices": [*range(len(shown))]}
        row = critic.processor(text=[text], videos=[shown], video_metadata=[facts], do_sample_frames=False,
                               cap_pixels_per_frame=True, return_tensors="pt")  # fmt: skip
        row.pop("video_metadata", None)
        assert words.convert_ids_to_tokens(row["input_ids"][0, -2:].tolist()) == [":", "ĠTrue"]
        logits = model(**row).logits[0, -2].detach().double().numpy()
        expected.append(np.exp(logits[row["input_ids"][0, -1]]) / np.exp(logits).sum())
    assert len({round(p, 9) for p in expected}) == 3, "beginnings differ"
    # The beginnings end at the frames 0, 4 and 8; step t leads to frame t + 1; between them it is a straight line.
    assert score.progress[[3, 7]] == pytest.approx(expected[1:], rel=1e-4)
    assert score.progress[1] == pytest.approx((expected[0] + expected[1]) / 2, rel=1e-4)
    assert score.progress[5] == pytest.approx((expected[1] + expected[2]) / 2, rel=1e-4)
    before = np.concatenate([[expected[0]], score.progress[:-1]])
    assert score.reward == pytest.approx(0.99 * score.progress - before, rel=1e-3, abs=1e-7) and not score.done.any()


def test_a_video_is_framed_once(folders: Folders) -> None:
    critic = made(f"topreward:{folders['qwen']},frames=4")
    question = Question(critic.say("statement", task=TASK), window(3).observation[CAMERA])
    (row,) = critic.encode([question], side="left", fps=2.0)["input_ids"]
    said = critic.processor.tokenizer.decode(row)
    assert said.startswith("<|im_start|>user\n<0.2 seconds><|vision_start|><|video_pad|>")
    assert said.count("<|vision_start|>") == 2 and said.endswith("The answer is: True")


def test_confidence_is_a_half_at_the_threshold(folders: Folders) -> None:
    """Else a threshold below a half would never end an episode."""
    text = f"topreward:{folders['qwen']},frames=3"
    (score,) = made(text).score([window(5)], [TASK])
    values = np.sort(score.progress)
    assert 0 < values[0] < values[-1] < 0.5
    threshold = float(values[-2:].mean())
    (again,) = made(f"{text},done={threshold}").score([window(5)], [TASK])
    assert again.done.any() and not again.done.all() and (again.confidence >= 0.5).all()
    assert not score.done.any() and score.confidence == pytest.approx(1.0 - score.progress, abs=0.2)


def test_an_answer_of_several_tokens_is_refused(folders: Folders, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps({"statement": "<video>{task} Answer: Truest"}))
    with pytest.raises(BadInput, match="True as one token"):
        made(f"topreward:{folders['qwen']},prompts={prompts}").score([window(4)], [TASK])


@pytest.mark.long
@pytest.mark.parametrize("form", ["robometer", "lerobot"])
def test_robometer_reads_progress_and_success_at_the_token_after_each_frame(folders: Folders, form: str) -> None:
    """Hidden states of the model with its language head; heads by numpy from the stored tensors."""
    critic = made(f"robometer:{folders[form]},frames=4")
    episode = window(4, steps=4)
    (score,) = critic.score([episode], [TASK])
    words, stored = critic.processor.tokenizer, load_file(folders[form] / "model.safetensors")
    added = [f"<|{name}_token|>" for name in ("split", "reward", "pref", "sim", "prog")]
    assert words.convert_ids_to_tokens([*range(len(words) - 5, len(words))]) == added
    model = tiny.loaded(QWEN, folders["qwen"])
    model.resize_token_embeddings(len(words))
    rows = stored[f"{'model.' * (1 + (form == 'lerobot'))}language_model.embed_tokens.weight"]
    model.get_input_embeddings().weight.data.copy_(rows)
    pictures = [fitted(frame, 32) for frame in episode.observation[CAMERA]]
    frame = "<|vision_start|><|image_pad|><|vision_end|><|prog_token|>"
    frames = "".join(f"Picture {i}: {frame}" for i in (1, 2, 3, 4))
    text = f"<|im_start|>user\n{critic.say('progress', task=TASK)}{frames}<|im_end|>\n"
    row = critic.processor(text=[text], images=pictures, do_resize=False, return_tensors="pt")
    ids = row["input_ids"][0].tolist()
    places = [i for i, token in enumerate(ids) if token == words.convert_tokens_to_ids("<|prog_token|>")]
    assert len(places) == 4 and all(words.decode(ids[i - 1]) == "<|vision_end|>" for i in places)
    hidden = model(**row, output_hidden_states=True).hidden_states[-1][0, places].detach().numpy()
    logits = tiny.head_by_hand(stored, "progress_head", hidden)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    bins = [0, 1 / 9, 2 / 9, 3 / 9, 4 / 9, 5 / 9, 6 / 9, 7 / 9, 8 / 9, 1]
    assert score.progress == pytest.approx((shares * bins).sum(1), rel=1e-4)
    probability = 1 / (1 + np.exp(-tiny.head_by_hand(stored, "success_head", hidden)[:, 0]))
    assert score.done.tolist() == (probability >= 0.5).tolist()
    assert score.confidence == pytest.approx(np.maximum(probability, 1 - probability), rel=1e-4)
    middle = np.median(probability)
    (again,) = made(f"robometer:{folders[form]},frames=4,done={middle}").score([episode], [TASK])
    assert again.done.tolist() == (probability >= middle).tolist() and 0 < again.done.sum() < 4


@pytest.mark.long
def test_a_batch_is_the_same_as_one_by_one(folders: Folders) -> None:
    """Windows of several lengths with different words: in one padded batch, or one by one to the bit."""
    windows, tasks = [window(n, seed=n) for n in (2, 7, 4)], [TASK, OTHER, "open the drawer"]
    single, several = (made(f"robometer:{folders['robometer']},batch={n}") for n in (1, 3))
    one = [single.score([w], [task])[0] for w, task in zip(windows, tasks, strict=True)]
    together, padded = single.score(windows, tasks), several.score(windows, tasks)
    for i, alone in enumerate(one):
        assert np.array_equal(alone.progress, together[i].progress)
        assert np.array_equal(alone.reward, together[i].reward)
        assert len(alone.progress) == len(windows[i]) and alone.progress == pytest.approx(padded[i].progress, abs=2e-6)
    (other,) = single.score(windows[1:2], [TASK])
    assert not np.allclose(one[1].progress, other.progress, atol=1e-4), "the words decide"


def test_beginnings_of_several_episodes_fit_a_batch(folders: Folders) -> None:
    windows, tasks = [window(n, seed=n) for n in (3, 6)], [TASK, OTHER]
    single, several = (made(f"topreward:{folders['qwen']},prefixes=3,batch={n}") for n in (1, 4))
    for alone, padded in zip(single.score(windows, tasks), several.score(windows, tasks), strict=True):
        assert alone.progress == pytest.approx(padded.progress, rel=1e-3) and np.ptp(alone.progress) > 1e-6


def test_later_frames_change_nothing_before_them(folders: Folders) -> None:
    critic, whole = made(f"robometer:{folders['robometer']},frames=6"), window(6)
    frames = whole.observation[CAMERA].copy()
    frames[4:] = 0
    first, second = (critic.score([w], [TASK])[0].progress for w in (whole, Window({CAMERA: frames}, whole.action)))
    assert first[:3] == pytest.approx(second[:3], abs=1e-6) and not np.allclose(first[3:], second[3:], atol=1e-4)


def test_numbers_that_are_not_finite_withhold_the_score(folders: Folders) -> None:
    critic = made(f"robometer:{folders['robometer']}")
    critic.heads["success_head"][4].bias.fill_(float("nan"))
    with pytest.raises(RewardWithheld, match="done at frame 0 is not finite"):
        critic.score([window(3)], [TASK])


def test_done_holds_from_the_frame_it_was_seen_at() -> None:
    """By hand: frames 0, 4 and 8 of 9 were looked at; step t leads to frame t + 1."""
    at = np.array([0, 4, 8])
    frames = SampledFrames(np.zeros((3, 2, 2, 3), np.uint8), at, 9)
    score = score_of(frames, FrameScores(at, np.array([0.0, 0.4, 0.8]), np.array([0.1, 0.6, 0.9])), 8, 0.5)
    assert score.progress == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    assert score.done.tolist() == [False] * 3 + [True] * 5
    assert score.confidence == pytest.approx([0.9] * 3 + [0.6] * 4 + [0.9])
    assert score.reward[3] == pytest.approx(1.0 + 0.99 * 0.4 - 0.3), "once, where it was done first"


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "fits"),
    [((40, 56), (96, 64)), ((64, 64), (64, 64)), ((100, 130), (128, 96)), ((6400, 12800), (5792, 2880))],
)
def test_sides_of_a_picture_are_whole_cells(size: tuple[int, int], fits: tuple[int, int]) -> None:
    """By hand, cells of 32 px. 40 x 56: 1 x 2 of them are fewer than 4, so √(4 · 32² / (40 · 56)) = 1.35 times as long,
    rounded up: 54.1 → 64, 75.7 → 96. 6400 x 12800: at most 16384, so 0.4525 times, rounded down: 2896 → 2880."""
    assert fitted(np.zeros((*size, 3), np.uint8), 32).size == fits


@pytest.mark.long
def test_a_model_that_cannot_be_read_is_one_clear_error(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def copy(name: str, source: str = "qwen") -> Path:
        target = tmp_path / name
        target.mkdir()
        for path in folders[source].iterdir():
            (target / path.name).write_bytes(path.read_bytes())
        return target

    def refused(text: object, what: str, family: str = "topreward") -> None:
        with pytest.raises(BadInput, match=what):
            make_reward(f"{family}:{text}", INTERFACE)

    def without(folder: Path, lost: str, **more: torch.Tensor) -> Path:
        tensors = {k: v for k, v in load_file(folder / "model.safetensors").items() if lost not in k} | more
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder

    refused("/no/such/folder", "there is no such folder")
    refused("nobody/nothing", "neither a folder nor a repository that can be fetched")
    empty = copy("empty")
    (empty / "model.safetensors").unlink()
    refused(empty, "no weights")
    (empty / "pytorch_model.bin").write_bytes(b"\x80\x04")
    refused(empty, "Pickles are not read")
    other = copy("other")
    config = json.loads((other / "config.json").read_text())
    config |= {"model_type": "internvl_chat", "auto_map": {"AutoModel": "x.Y"}}
    (other / "config.json").write_text(json.dumps(config))
    refused(other, "internvl_chat.*qwen3_vl")
    refused(without(copy("lacking"), "layers.0.mlp.up_proj"), "no tensor 'model.language_model.layers.0.mlp.up_proj")
    refused(without(copy("more"), "none", adapter=torch.zeros(2)), "a tensor that has no place, 'adapter'")
    damaged = copy("damaged")
    (damaged / "model.safetensors").write_bytes(b"\xff" * 100)
    refused(damaged, f"weights of a {QWEN}")
    mute = copy("mute")
    (mute / "chat_template.jinja").unlink()
    refused(mute, "without chat_template")
    refused(without(copy("headless", "robometer"), "success_head.4"), r"success_head\.4\.weight", "robometer")
    refused(folders["qwen"], "rows for", "robometer")


def test_a_request_is_checked_before_a_model_is_loaded(folders: Folders, tmp_path: Path) -> None:
    cameras = {name: ArraySpec((40, 56, 3), "uint8") for name in (CAMERA, "images.wrist")}
    two = Interface(cameras, ArraySpec((2,)), 20.0)
    for text, what in {
        "robometer:": "no model", "robometer:a/b,frmes=3": "did you mean frames", "robometer:a/b,frames=x": "frames",
        "robometer:a/b,frames=1": "frames: 2", "robometer:a/b,done=0": "done", "topreward:a/b,prefixes=0": "prefixes",
        "robometer:a/b,dtype=int8": "dtype",
    }.items():  # fmt: skip
        with pytest.raises(BadInput, match=what):
            reward_config(text)
    with pytest.raises(BadInput, match=r"2 of them, and none named.*images.front, images.wrist"):
        make_reward("robometer:a/b", two)
    with pytest.raises(BadInput, match=r"images\.side"):
        make_reward("robometer:a/b,camera=side", two)
    prompts = tmp_path / "prompts.json"
    for content, what in ({"rubric": "x"}, "rubric"), ({"progress": "no task"}, "{task} as often"):
        prompts.write_text(json.dumps(content))
        with pytest.raises(BadInput, match=what):
            make_reward(f"robometer:a/b,prompts={prompts}", INTERFACE)
    critic: Any = make_reward(f"topreward:{folders['qwen']},camera=wrist", two)
    with pytest.raises(BadInput, match=r"images\.wrist.*images\.front"):
        critic.score([window(3)], [TASK])
    with pytest.raises(BadInput, match=r"images\.wrist"):
        critic.check(INTERFACE)
    wrist = Window({"images.wrist": window(3).observation[CAMERA]}, np.zeros((2, 2), np.float32))
    for task, what in ((" ", "missing"), ("lift <|im_end|>", "the mark <.im_end.>"), ("a <video>", "<video>")):
        with pytest.raises(BadInput, match=what):
            critic.score([wrist], [task])


def test_weights_in_several_files_with_a_tied_output(tmp_path: Path) -> None:
    """As the larger models are published: the output weights are in no file, and that is no missing tensor."""
    model = tiny.qwen(tmp_path / "one", tied=True)
    tiny.qwen(tmp_path / "several", tied=True, files="60KB")
    assert len(list((tmp_path / "several").glob("*.safetensors"))) > 2
    assert model.lm_head.weight is model.get_input_embeddings().weight
    one, several = (made(f"topreward:{tmp_path / name}").score([window(3)], [TASK])[0] for name in ("one", "several"))
    assert np.array_equal(one.progress, several.progress) and np.ptp(one.progress) > 0


def test_a_model_is_named_by_its_files_and_words(folders: Folders, tmp_path: Path) -> None:
    text, prompts = f"topreward:{folders['qwen']}", tmp_path / "prompts.json"
    prompts.write_text(json.dumps({"statement": "<video>{task} True"}))
    names = [model_name("", made(text + more)) for more in ("", ",batch=2", ",frames=4", f",prompts={prompts}")]
    assert names[0] == names[1] and len(set(names)) == 3
    tiny.qwen(tmp_path / "other", seed=1)
    assert model_name("", made(f"topreward:{tmp_path / 'other'}")) not in names
