"""One-shot mode: an episode that solved the task is shown to the critic, to VLAC and to GVL; others are refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.cli.main import main
from robolearn.core import BadInput, Episode, Window
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.rewards.choice import make_reward
from robolearn.rewards.critic import ProgressCritic, load_critic, save_critic
from robolearn.rewards.metrics import window_of
from robolearn.rewards.reference import read_reference, show_reference
from robolearn.rewards.settings import CriticConfig
from robolearn.rewards.stored import model_name
from robolearn.rewards.vla.critic import Question

sys.path.insert(0, str(Path(__file__).parent))
import tiny_vlms as tiny
from controls import PICTURES, TASK, episode, write
from tiny_vlms import CAMERA, INTERFACE, window

SMALL = CriticConfig(steps=1, width=8, channels=2, picture=48, members=2, hand=False)
OTHER = "open the drawer"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("reference") / "data", successes=2, failures=1)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set for the vision-language models, of one success of nine frames."""
    path = tmp_path_factory.mktemp("reference") / "shown"
    seen, length = window(9, seed=5, steps=9).observation, 9
    with EpisodeWriter(path, INTERFACE, failures=True) as writer:
        writer.write_all([
            Episode(seen, np.zeros((length, 2), np.float32), np.zeros(length, np.float32), True, True, False, TASK)
        ])  # fmt: skip
    return path


def critic() -> ProgressCritic:
    torch.manual_seed(0)
    made = ProgressCritic(SMALL, {"images.front": (48, 48)}, [OTHER, TASK], torch.eye(2, 384), tasks=2)
    made.starts.normal_(generator=torch.Generator().manual_seed(1))
    return made.eval()


def test_the_starts_of_its_task_are_those_of_the_reference(data: Path) -> None:
    made = critic()
    before, named = made.starts.clone(), model_name("", made)
    show_reference(made, f"{data}:1")
    maps = made.encoder.encode([window_of(episode(True, 1)).observation["images.front"]]).float()
    for start in made.starts[4:].float():  # pictures are stored as a film, not to the bit
        assert (maps - start).flatten(1).norm(dim=1).argmin() == 0
    assert torch.equal(made.starts[:4], before[:4]), "those of the other task stay"
    assert model_name("", made) != named, "its scores are others"


def test_progress_is_read_from_it_and_stored(data: Path, tmp_path: Path) -> None:
    made, asked = critic(), window_of(episode(True, 7))
    before = made.score([asked], [TASK])[0].progress
    show_reference(made, f"{data}:1")
    after = made.score([asked], [TASK])[0].progress
    assert not np.array_equal(before, after)
    again = load_critic(save_critic(made, tmp_path / "critic"))
    np.testing.assert_array_equal(again.score([asked], [TASK])[0].progress, after)
    np.testing.assert_array_equal(
        made.score([asked], [OTHER])[0].progress, critic().score([asked], [OTHER])[0].progress
    )


def test_another_episode_is_refused(data: Path, shown: Path, tmp_path: Path) -> None:
    for text, what in {
        f"{data}:2": "got one that failed, expected an episode that solved", f"{data}:9": "got 9, expected 0 to 2",
        f"{data}": "DATA:EPISODE", f"{data}:": "DATA:EPISODE", f"{data}:-1": "DATA:EPISODE", ":1": "DATA:EPISODE",
        f"{tmp_path / 'none'}:0": "none",
    }.items():  # fmt: skip
        with pytest.raises(BadInput, match=what):
            read_reference(text)
    with pytest.raises(BadInput, match=f"--reference {shown}:0: critic: images.front: got 40 x 56 px"):
        show_reference(critic(), f"{shown}:0")
    wrist = tmp_path / "wrist"
    one = episode(True, 1)
    side = replace(PICTURES, observation={"images.side": PICTURES.observation["images.front"]})
    with EpisodeWriter(wrist, side, failures=True) as writer:
        writer.write_all([replace(one, observation={"images.side": one.observation["images.front"]})])
    with pytest.raises(BadInput, match="front: got no such camera"):
        show_reference(critic(), f"{wrist}:0")


def asked_of(model: Any, *episodes: Window) -> list[Question]:
    """The questions that a score of `episodes` asks first, by default of one of three frames."""
    windows = episodes or (window(3),)
    found: list[Question] = []

    def keep(questions: list[Question]) -> list[Any]:
        found.extend(questions)
        raise InterruptedError

    model.ask = keep
    with pytest.raises(InterruptedError):
        model.score(windows, [TASK] * len(windows))
    del model.ask
    return found


@pytest.mark.long
def test_vlac_has_it_before_each_pair(shown: Path, tmp_path: Path) -> None:
    """Three frames of the reference with 0, 50 and 100%, the first of the episode, and the pair."""
    tiny.intern(tmp_path / "model")
    made: Any = make_reward(f"vlac:{tmp_path / 'model'},frames=3,reference={shown}:0", INTERFACE)
    questions = asked_of(made)
    frames = [made._picture(frame) for frame in window(3).observation[CAMERA]]
    of_it = [made._picture(frame) for frame in made.shown.pictures]
    assert made.shown.at.tolist() == [0, 4, 8] and len(questions) == 2
    for question, pair in zip(questions, (frames[:2], frames[1:]), strict=True):
        assert (
            question.text.startswith("0% <image>\n50% <image>\n100% <image>\n") and question.text.count("<image>") == 6
        )
        seen = [np.asarray(picture) for picture in question.pictures]
        assert all(np.array_equal(a, np.asarray(b)) for a, b in zip(seen, [*of_it, frames[0], *pair], strict=True))
    plain: Any = make_reward(f"vlac:{tmp_path / 'model'},frames=3", INTERFACE)
    assert [len(question.pictures) for question in asked_of(plain)] == [2, 2]
    assert model_name("", made) != model_name("", plain)
    show_reference(plain, f"{shown}:0")
    assert model_name("", made) == model_name("", plain), "the flag and the option are the same"


@pytest.mark.long
def test_what_pairs_have_in_common_is_read_once(shown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two episodes with three pairs each: the same probabilities, and four beginnings fewer, of as many tokens as
    stand before the picture of the pair that comes first."""
    tiny.intern(tmp_path / "model")
    made: Any = make_reward(f"vlac:{tmp_path / 'model'},frames=4,reference={shown}:0", INTERFACE)
    questions = asked_of(made, window(4, seed=1), window(4, seed=2))
    assert [question.shared for question in questions] == [5] * 6, "four frames of the reference, and the first"
    text, read = made.model.model.language_model, [0]
    forward = text.forward

    def counted(*args: Any, inputs_embeds: Any, **more: Any) -> Any:
        read[0] += inputs_embeds.shape[1]
        return forward(*args, inputs_embeds=inputs_embeds, **more)

    monkeypatch.setattr(text, "forward", counted)

    def answers(asked: list[Question]) -> tuple[list[Any], int]:
        read[0] = 0
        with torch.inference_mode():
            found = made.ask(asked)
        return [answer.tokens for answer in found], read[0]

    once, fewer = answers(questions)
    each, more = answers([replace(question, shared=0) for question in questions])
    (row,) = made.encode(questions[:1], side="left", asked=True, **made.options)["input_ids"]
    pictures = [i for i, token in enumerate(row) if made.processor.tokenizer.decode([token]) == "<IMG_CONTEXT>"]
    assert len(pictures) == 7 and more - fewer == 4 * pictures[5] > more / 3
    for ours, theirs in zip(once, each, strict=True):
        assert [token[0][0] for token in ours] == [token[0][0] for token in theirs]
        p, q = ([dict(token) for token in tokens] for tokens in (ours, theirs))
        assert all(
            a[said] == pytest.approx(b[said], abs=1e-5) for a, b in zip(p, q, strict=True) for said in a if said in b
        )
    turned, _ = answers(questions[::-1])
    assert turned[::-1] == once and answers(questions[4:5])[0] == once[4:5], "to the bit, whatever was asked before"


@pytest.mark.long
def test_gvl_has_it_shuffled_before_the_frames(shown: Path, tmp_path: Path) -> None:
    tiny.qwen(tmp_path / "model")
    made: Any = make_reward(f"gvl:{tmp_path / 'model'},frames=5,reference={shown}:0", INTERFACE)
    (question,) = asked_of(made)
    said = [line for line in question.text.splitlines() if "another attempt" in line]
    percent = [int(line.rpartition(" ")[2].removesuffix("%")) for line in said]
    assert sorted(percent) == [0, 25, 50, 75, 100] and percent[0] == 0 and percent != sorted(percent)
    for share, picture in zip(percent, question.pictures[:5], strict=True):
        np.testing.assert_array_equal(picture, made.shown.pictures[share // 25])
    assert len(question.pictures) == question.text.count("<image>") == 5 + 3
    assert question.text.index("0% of the task: <image>") > question.text.rindex("another attempt")


@pytest.mark.long
def test_the_commands(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(save_critic(critic(), tmp_path / "critic"))

    def progress(*words: str) -> list[float]:
        assert main(["reward", "score", "--critic", folder, "--data", str(data), "--json", *words]) == 0
        return [row["progress"] for row in json.loads(capsys.readouterr().out.splitlines()[-1])["scores"]]

    plain, one_shot = progress(), progress("--reference", f"{data}:1")
    assert plain != one_shot
    assert main(["reward", "score", "--critic", folder, "--data", str(data), "--reference", f"{data}:2"]) == 2
    assert "one that failed" in " ".join(capsys.readouterr().err.split())
    control = ["reward", "evaluate", "--critic", "controls:Truth", "--data", str(data)]
    assert main([*control, "--reference", f"{data}:0"]) == 2
    assert "a Truth, which takes none" in " ".join(capsys.readouterr().err.split())
    small = ["--steps", "1", "--batch", "16", "--width", "8", "--channels", "2", "--picture", "48", "--views", "1"]
    train = ["reward", "train", "--data", str(data), "--out", str(tmp_path / "run"), *small, "--json"]
    assert main([*train, "--reference", f"{data}:1"]) == 0
    trained = load_critic(tmp_path / "run")
    assert isinstance(trained, ProgressCritic)
    assert all(torch.equal(start, trained.starts[0]) for start in trained.starts[:4])
    assert main([*train, "--resume"]) == 2, "with the same reference alone"
