"""Critics that answer in words: parsing by hand, and tiny models of the real classes that were taught an answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from robolearn.core import BadInput, RewardWithheld
from robolearn.rewards.choice import make_reward
from robolearn.rewards.vla.answers import GeneratedAnswer, expected_number, percentages, rating
from robolearn.rewards.vla.vlac import accumulated

sys.path.insert(0, str(Path(__file__).parent))
import tiny_vlms as tiny
from tiny_vlms import CAMERA, INTERFACE, OTHER, TASK, window

QWEN, INTERN = "Qwen3VLForConditionalGeneration", "InternVLForConditionalGeneration"
FRAMES = "Frame 1: 40%\nFrame 2: 62.5%\nFrame 3: 100%"


def made(text: str) -> Any:
    return make_reward(text, INTERFACE)


def said(*tokens: str | Sequence[tuple[str, float]]) -> list[Sequence[tuple[str, float]]]:
    return [[(token, 1.0)] if isinstance(token, str) else token for token in tokens]


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (["ANSWER", ":", " 4"], (4, 1.0)), (["ANSWER:", [(" 5", 0.7), (" 4", 0.3)]], (5, 0.7)),
        (["so ANSWER:2"], (2, 1.0)), (["ANSWER: 0"], None), (["ANSWER: 6"], None), (["ANSWER: 1", "2"], None),
        (["4"], None), ([], None), (["ANSWER: four"], None), (["ANSWER: -3"], None),
    ],
)  # fmt: skip
def test_a_rating_is_taken_apart(tokens: list[Any], found: tuple[int, float] | None) -> None:
    parts = said(*tokens)
    assert rating(GeneratedAnswer("".join(token[0][0] for token in parts), parts)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FRAMES, [40.0, 62.5, 100.0]), ("Frame 3: 1%, Frame 1: 2 %, Frame 2:3%", [2.0, 3.0, 1.0]),
        ("Frame 1: 40%\nFrame 2: 62%", None), (FRAMES + "\nFrame 3: 1%", None),
        ("Frame 1: 40%\nFrame 2: 50%\nFrame 4: 9%", None), (FRAMES.replace("100", "101"), None),
        ("40% 50% 60%", None), ("", None), ("Frame 1: a%\nFrame 2: 5%\nFrame 3: 6%", None),
    ],
)  # fmt: skip
def test_percentages_are_of_every_frame_once_or_none(text: str, found: list[float] | None) -> None:
    assert percentages(text, 3) == found


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (["35"], 35.0), (["+", "35", "%"], 35.0), (["-", "1", "2", "</score>", "7"], -12.0), ([" ", "-", " 8"], -8.0),
        ([[("3", 0.6), ("4", 0.4)]], 3.4), ([[("3", 0.6), ("x", 0.3), ("5", 0.059)]], 3.0),  # 0.059 is under a tenth
        (["-", [("1", 0.5), ("2", 0.5)], [("0", 0.75), ("4", 0.25)]], -16.0),  # 1.5 · 10 + 1
        ([], None), (["-"], None), (["no"], None), (["²"], None), (["x", "5"], None),
    ],
)  # fmt: skip
def test_a_number_is_an_expectation_over_digits(tokens: list[Any], found: float | None) -> None:
    assert expected_number(said(*tokens)) == pytest.approx(found)


def test_changes_are_accumulated() -> None:
    """By hand: half of what is left, twice; the way back from 75 is 100 − 25 / 0.5; at 50 a loss is of what is."""
    assert accumulated([50, 50, -50, -20, 0]) == pytest.approx([0, 50, 75, 50, 40, 40])
    assert accumulated([100, -100, -100]) == pytest.approx([0, 100, 10, 0]), "no further back than 10 from above a half"
    assert accumulated([-50]) == [0, 0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """name → a folder with a tiny model that was taught an answer; `random` was taught none."""
    root = tmp_path_factory.mktemp("talkers")
    found = {name: root / name for name in ("rating", "rubbish", "frames", "number", "random")}
    tiny.teach(found["rating"], tiny.qwen(found["rating"]), {"ANSWER": 1.0}, {":": 1.0}, {" 4": 0.8, " 3": 0.2})
    tiny.teach(found["rubbish"], tiny.qwen(found["rubbish"]), {"ANSWER": 1.0}, {":": 1.0}, {"35": 1.0})
    tiny.teach(found["frames"], tiny.qwen(found["frames"], answers=(FRAMES,)), {FRAMES: 1.0})
    tiny.teach(found["number"], tiny.intern(found["number"]), {"1": 0.7, "0": 0.3}, keep=0.3)
    tiny.intern(found["random"])
    return found


@pytest.mark.long
def test_roboreward_rates_each_beginning(folders: dict[str, Path]) -> None:
    critic = made(f"roboreward:{folders['rating']},prefixes=2")
    (score,) = critic.score([window(5)], [TASK])
    assert score.progress.tolist() == [0.75] * 4 and not score.done.any()
    # The probability of " 4", from the logits after the two tokens before it, of the whole of the row at once.
    asked = critic.say("rubric", task=TASK).removeprefix("<video>")
    text = f"<|im_start|>user\n<|video_pad|>{asked}<|im_end|>\n<|im_start|>assistant\nANSWER:"
    facts = {"total_num_frames": 5, "fps": 1.0, "frames_indices": [0, 1, 2, 3, 4]}
    row = critic.processor(text=[text], videos=[window(5).observation[CAMERA]], video_metadata=[facts],
                           do_sample_frames=False, return_tensors="pt")  # fmt: skip
    row.pop("video_metadata", None)
    shares = tiny.loaded(QWEN, folders["rating"])(**row).logits[0, -1].detach().double().softmax(-1)
    wanted = float(shares[critic.processor.tokenizer.encode(" 4")[0]])
    assert 0.6 < wanted < 0.95 and score.confidence[-1] == pytest.approx(wanted, rel=1e-3)
    (done,) = made(f"roboreward:{folders['rating']},prefixes=1,done=0.7").score([window(5)], [TASK])
    assert done.done.all()


def test_gvl_puts_the_percentages_back_in_order(folders: dict[str, Path]) -> None:
    critic, episode = made(f"gvl:{folders['frames']},frames=4"), window(4, steps=4)
    (score,) = critic.score([episode], [TASK])
    clip = critic._clip(episode)
    order = critic.order(clip, TASK)
    assert sorted(order) == [1, 2, 3]
    expected = np.zeros(4)
    expected[order[0]], expected[order[1]], expected[order[2]] = 0.4, 0.625, 1.0
    assert score.progress == pytest.approx(expected) and score.done.tolist() == (expected >= 0.95).tolist()
    orders = {tuple(critic.order(critic._clip(window(4, seed=s, steps=4)), TASK)) for s in range(20)}
    assert len(orders) > 3, "each episode has its own"
    assert critic.score([episode], [TASK])[0].progress.tolist() == score.progress.tolist()


def test_vlac_accumulates_the_changes_between_neighbours_and_asks_whether_it_is_done(folders: dict[str, Path]) -> None:
    """The expected number of each question from the whole of the logits of the model, one row at a time."""
    critic, episode = made(f"vlac:{folders['number']},frames=3"), window(3)
    (score,) = critic.score([episode], [TASK])
    model, words = tiny.loaded(INTERN, folders["number"]), critic.processor.tokenizer
    seen = [critic._picture(frame) for frame in episode.observation[CAMERA]]
    assert {picture.size for picture in seen} == {(28, 28)}

    def number(text: str, pictures: list[Any]) -> float:
        text = (f"<|im_start|>system\n{critic.texts['system']}<|im_end|>\n<|im_start|>user\n"
                f"{text.replace('<image>', '<IMG_CONTEXT>')}<|im_end|>\n<|im_start|>assistant\n")  # fmt: skip
        row = critic.processor(text=[text], images=pictures, crop_to_patches=False, return_tensors="pt")
        assert words.decode(row["input_ids"][0]).count("<img><IMG_CONTEXT></img>") == len(pictures)
        p = model(**row).logits[0, -1].detach().double().softmax(-1)
        p0, p1, p2 = (float(p[words.encode(digit)[0]]) for digit in "012")
        return (p1 + 2 * p2) / (p0 + p1 + p2)

    changes = [number(critic.say("progress", task=TASK), seen[i : i + 2]) for i in (0, 1)]
    turned = number(critic.say("progress", task=TASK), seen[1::-1])
    assert min(abs(changes[0] - changes[1]), abs(changes[0] - turned)) > 5e-5, "pictures, and their order, decide"
    first = changes[0] / 100
    assert score.progress == pytest.approx([first, first + (1 - first) * changes[1] / 100], rel=1e-5)
    done = np.array([number(critic.say("done", task=TASK), [picture]) for picture in seen[1:]])
    assert score.done.all() and score.confidence == pytest.approx(done, rel=1e-4)


def test_several_episodes_are_asked_in_a_batch(folders: dict[str, Path]) -> None:
    windows, tasks = [window(n, seed=n) for n in (2, 4)], [TASK, OTHER]
    single, several = (made(f"vlac:{folders['number']},batch={n}") for n in (1, 4))
    for alone, padded in zip(single.score(windows, tasks), several.score(windows, tasks), strict=True):
        assert alone.progress == pytest.approx(padded.progress, rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("roboreward:{rubbish},prefixes=1", "'ANSWER:35' is no ANSWER: 1 to 5"),
        ("gvl:{rating}", "'ANSWER: 4' is not Frame 1"), ("gvl:{frames},frames=3", "Frame 1: …% to 2"),
        ("vlac:{random},frames=2", "is no number from -100 to 100"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_withholds_the_score(folders: dict[str, Path], text: str, what: str) -> None:
    with pytest.raises(RewardWithheld, match=what):
        made(text.format(**folders)).score([window(4)], [TASK])


def test_logits_that_are_not_finite_withhold_the_score(folders: dict[str, Path]) -> None:
    critic = made(f"vlac:{folders['number']}")
    critic.model.lm_head.weight[3] = float("nan")
    with pytest.raises(RewardWithheld, match="not finite"):
        critic.score([window(3)], [TASK])


def test_models_of_another_class_and_with_code_of_their_own_are_refused(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=r"model_type: got qwen3_vl.*internvl"):
        made(f"vlac:{folders['rating']}")
    published = tmp_path / "published"
    published.mkdir()
    for path in folders["number"].iterdir():
        (published / path.name).write_bytes(path.read_bytes())
    config = json.loads((published / "config.json").read_text()) | {"model_type": "internvl_chat"}
    (published / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "code.Model"}}))
    (published / "code.py").write_text("raise SystemExit('run')\n")
    save_file(load_file(published / "model.safetensors"), published / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match="convert it"):
        made(f"vlac:{published}")
    with pytest.raises(BadInput, match="convert it"):
        made(f"gvl:{published}")


def test_weights_of_another_type_answer_nearly_the_same(folders: dict[str, Path]) -> None:
    text = f"vlac:{folders['number']}"
    (wide,), (narrow,) = (made(f"{text},dtype={kind}").score([window(4)], [TASK]) for kind in ("float32", "bfloat16"))
    assert wide.progress != pytest.approx(narrow.progress, rel=1e-6)
    assert wide.progress == pytest.approx(narrow.progress, rel=0.1)
