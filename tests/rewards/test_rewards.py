"""A reward by its name, and its score in the place of an episode's rewards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from robolearn.core import ArraySpec, BadInput, Interface, RewardModel, Score, Window
from robolearn.data.replay import PlayedEpisode
from robolearn.rewards.choice import (
    KEY,
    REWARDS,
    TASK,
    RewardConfig,
    make_reward,
    make_reward_model,
    reward_config,
)
from robolearn.rewards.done import DoneRule
from robolearn.rewards.scoring import held, scores_of, window_of, with_score

INTERFACE = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)


class BeyondOne:
    """Scores by proprioception: the progress is where a step leads to, and beyond 1 the task is solved."""

    def __init__(self, interface: Interface) -> None:
        self.interface, self.sure = interface, 1.0
        self.seen: list[tuple[Window, str]] = []

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        self.seen += zip(windows, prompts, strict=True)
        return [self.score_one(window) for window in windows]

    def score_one(self, steps: Window) -> Score:
        x = np.append(steps.observation["proprio"][:, 0], np.zeros(1))[1 : len(steps) + 1].astype(np.float32)
        return Score(np.clip(x, 0.0, 1.0), x, x >= 1.0, np.full(len(steps), self.sure, np.float32))


def episode(*x: float, terminated: bool = False, success: bool = False) -> PlayedEpisode:
    """One more x than there are steps."""
    steps = len(x) - 1
    return PlayedEpisode(
        {"proprio": np.array(x, np.float32)[:, None]}, np.arange(steps, dtype=np.float32)[:, None] / 10,
        np.full(steps, 7.0, np.float32), np.arange(steps) == 1, terminated, success,
    )  # fmt: skip


def scored(
    played: PlayedEpisode, model: RewardModel, task: str, *, every: int = 1, gamma: float = 0.99
) -> PlayedEpisode:
    """As a replay has it: the model sees one frame in `every`."""
    (score,) = scores_of(model, [window_of(played, every)], [task])
    return with_score(played, held(played, score, every), gamma=gamma)


def test_a_score_takes_the_place_of_the_reward_and_ends_the_episode() -> None:
    model = BeyondOne(INTERFACE)
    found = scored(episode(0.1, 0.4, 1.2, 0.3, 1.5), model, "go right")
    #                                            γ Φ, Φ = .4;  1 − .4, without a potential after the end
    assert found.reward.tolist() == pytest.approx([0.99 * 0.4, 0.6]) and found.terminated and found.success
    assert found.observation["proprio"][:, 0].tolist() == pytest.approx([0.1, 0.4, 1.2]), "with its final observation"
    assert found.action.tolist() == [[0.0], [pytest.approx(0.1)]] and found.intervention.tolist() == [False, True]
    ((window, words),) = model.seen
    assert words == "go right" and len(window) == 4 and len(window.observation["proprio"]) == 5


@pytest.mark.parametrize(
    ("terminated", "success", "failed"), [(True, True, False), (True, False, True), (False, False, False)]
)
def test_where_the_model_sees_no_success_there_is_none(terminated: bool, success: bool, failed: bool) -> None:
    """The world's own success is only where the episode was cut; a failure stays one, and nothing comes after it."""
    found = scored(episode(0.1, 0.4, 0.9, terminated=terminated, success=success), BeyondOne(INTERFACE), "")
    last = -0.4 if failed else 0.99 * 0.9 - 0.4
    assert found.reward.tolist() == pytest.approx([0.99 * 0.4, last])
    assert not found.success and found.terminated is failed


def test_a_model_that_is_not_sure_ends_nothing() -> None:
    model = BeyondOne(INTERFACE)
    model.sure = 0.4
    found = scored(episode(0.1, 1.4, 0.9), model, "")
    assert len(found) == 2 and not found.success and not found.terminated


def test_between_the_frames_that_a_model_sees_its_word_holds() -> None:
    """Seven steps, every third frame and the last; rewards by hand: γ Φ_t − Φ_{t−1} of what is held."""
    model = BeyondOne(INTERFACE)
    found = scored(episode(0.0, 0.9, 0.8, 0.2, 0.9, 0.8, 0.5, 0.7), model, "", every=3, gamma=0.5)
    ((window, _),) = model.seen
    assert window.observation["proprio"][:, 0].tolist() == pytest.approx([0.0, 0.2, 0.5, 0.7]) and len(window) == 3
    #                                       Φ: 0, 0, .2, .2, .2, .5, .7
    assert found.reward.tolist() == pytest.approx([0.0, 0.0, 0.1, -0.1, -0.1, 0.05, -0.15])
    assert len(found) == 7 and not found.terminated and not found.success


def test_done_counts_from_the_frame_in_which_it_was_seen_and_has_no_potential() -> None:
    found = scored(episode(0.0, 1.5, 0.4, 1.5, 1.2, 0.1), BeyondOne(INTERFACE), "", every=2, gamma=0.5)
    #                      seen: 0, .4, 1.2;  Φ: 0, .4, .4, 0 after done
    assert found.reward.tolist() == pytest.approx([0.0, 0.2, -0.2, 1.0 - 0.4])
    assert len(found) == 4 and found.terminated and found.success
    assert found.observation["proprio"][:, 0].tolist() == pytest.approx([0.0, 1.5, 0.4, 1.5, 1.2])


def test_an_unsure_done_between_frames_ends_nothing() -> None:
    model = BeyondOne(INTERFACE)
    model.sure = 0.4
    found = scored(episode(0.0, 1.5, 1.5, 0.2, 0.1), model, "", every=2, gamma=1.0)
    assert found.reward.tolist() == pytest.approx([0.0, 1.0, 0.0, -0.9]) and not found.success and len(found) == 4


def test_without_a_final_observation_a_frame_stands_for_its_own_step() -> None:
    class Still(BeyondOne):
        def score_one(self, steps: Window) -> Score:
            x = steps.observation["proprio"][:, 0].astype(np.float32)
            return Score(x, x, x >= 1.0, np.ones(len(x), np.float32))

    played = episode(0.3, 0.9, 0.5, 0.7, 0.6)
    cut = replace(played, observation={"proprio": played.observation["proprio"][:-1]})
    found = scored(cut, Still(INTERFACE), "", every=2, gamma=1.0)
    #               seen: .3, .5, and the last, .7;  Φ: .3, .3, .5, .7
    assert found.reward.tolist() == pytest.approx([0.3, 0.0, 0.2, 0.2])


def half_sure(*p: float) -> Score:
    """The score of a critic whose probability of *done* is `p`, with a reward of its own: 1 where it is half first."""
    values, done = np.array(p, np.float32), np.array(p) >= 0.5
    own = (np.arange(len(p)) == np.argmax(done)).astype(np.float32) + values
    return Score(values / 2, own, done, np.where(done, values, 1 - values).astype(np.float32))


@pytest.mark.parametrize(
    ("p", "solved"), [((0.1, 0.6, 0.6, 0.7, 0.9), 5), ((0.1, 0.6, 0.9, 0.7, 0.9), 3), ((0.1, 0.6, 0.6, 0.2, 0.1), 0)]
)
@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("gamma", [0.5, 0.9, 1.0])
def test_the_return_of_a_scored_episode_telescopes_to_the_one_of_done(
    p: tuple[float, ...], solved: int, terminated: bool, gamma: float
) -> None:
    """γ^{T−1} of an episode that is solved after T steps, 0 of one that failed, γ^T Φ_T of one that was only cut."""
    found = with_score(episode(*range(6), terminated=terminated), half_sure(*p), DoneRule(0.8), gamma=gamma)
    assert found.success is bool(solved) and len(found) == (solved or 5)
    back = float((found.reward * gamma ** np.arange(len(found))).sum())
    cut = 0.0 if terminated else gamma**5 * p[-1] / 2
    assert back == pytest.approx(gamma ** (solved - 1) if solved else cut, abs=1e-6)
    potential = np.array(p[: len(found)]) / 2
    shaped = gamma * potential - np.append(0.0, potential[:-1])
    if found.terminated:
        shaped[-1] -= gamma * potential[-1]
    one = np.arange(1, len(found) + 1) == solved
    assert (found.reward - shaped).tolist() == pytest.approx(one.astype(float).tolist(), abs=1e-6)


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.array([np.nan, 0.0], np.float32)])
def test_scores_that_are_none_are_refused(wrong: np.ndarray) -> None:
    class Wrong(BeyondOne):
        def score_one(self, steps: Window) -> Score:
            return Score(np.zeros(2, np.float32), wrong, np.zeros(2, np.bool_), np.ones(2, np.float32))

    with pytest.raises(BadInput, match="reward model: reward"):
        scored(episode(0.1, 0.4, 0.9), Wrong(INTERFACE), "")


def test_rewards_by_name() -> None:
    assert make_reward(TASK, INTERFACE) is None and make_reward(KEY, INTERFACE) is None
    model = make_reward(f"{__name__}:BeyondOne", INTERFACE)
    assert isinstance(model, BeyondOne) and isinstance(model, RewardModel) and model.interface is INTERFACE
    for wrong in ("success", ":", "module:", ":Class"):
        with pytest.raises(BadInput, match="task"):
            reward_config(wrong)
    for wrong in ("no.such.module:Class", f"{__name__}:NoSuchClass", "collections:OrderedDict", "numpy:float64"):
        with pytest.raises(BadInput, match=f"^--reward: {wrong}: got "):
            make_reward(wrong, INTERFACE)


def test_a_message_names_the_flag_that_was_typed_and_what_that_takes() -> None:
    with pytest.raises(BadInput, match=r"^--critic: got task; available: robometer:") as said:
        make_reward_model(TASK, INTERFACE, "cpu", "--critic")
    assert "<folder of a critic>" in str(said.value) and "task," not in str(said.value)
    with pytest.raises(BadInput, match=r"^--critic: missing; available: robometer:"):
        make_reward_model("", INTERFACE, "cpu", "--critic")
    for text, why in (("gvl:", "gvl: got no model"), ("serve:a:1,timeout_s=0", "serve: timeout_s: got 0"),
                      ("none/here", "critic none/here: ")):  # fmt: skip
        with pytest.raises(BadInput, match=f"^--other: {why}"):
            make_reward_model(text, INTERFACE, "cpu", "--other")
        with pytest.raises(BadInput, match=f"^--reward: {why}"):
            make_reward(text, INTERFACE)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class Model(:", "SyntaxError: invalid syntax"),
        ("import no_such_module_anywhere", "ModuleNotFoundError: No module named"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("class Model:\n    def __init__(self, interface):\n        raise KeyError('front')", "KeyError: 'front'"),
        ("class Model:\n    def __init__(self, interface):\n        raise RuntimeError", "RuntimeError: RuntimeError"),
        ("from robolearn.core import BadInput\nclass Model:\n    def __init__(self, interface):\n"
         "        raise BadInput('camera', got='none')", "camera: got none"),
        ("class Model:\n    def __init__(self, interface):\n        pass", "no method score"),
    ],
)  # fmt: skip
def test_a_model_of_one_s_own_that_does_not_load_is_one_line(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_model.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    with pytest.raises(BadInput, match=f"^--critic: .*{said}") as error:
        make_reward_model("own_model:Model", INTERFACE, "cpu", "--critic")
    assert "\n" not in str(error.value)


def test_several_windows_are_scored_at_once() -> None:
    model = BeyondOne(INTERFACE)
    episodes = [episode(0.1, 0.4, 0.9), episode(0.2, 1.3)]
    windows = [Window(e.observation, e.action) for e in episodes]
    first, second = scores_of(model, windows, ["go right", "go on"])
    assert first.progress.tolist() == pytest.approx([0.4, 0.9]) and second.progress.tolist() == [1.0]
    assert [words for _, words in model.seen] == ["go right", "go on"]
    model.score = lambda windows, prompts: []  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="one for each of 2 windows"):
        scores_of(model, windows, ["", ""])


@dataclass(frozen=True)
class MineReward(RewardConfig):
    """A sort of reward of one's own, with a setting after its name."""

    name = "mine"
    usage = "mine@<number>"
    is_privileged = True

    sure: float = 1.0

    @classmethod
    def of(cls, text: str) -> Self | None:
        name, _, number = text.partition("@")
        return cls(float(number)) if name == cls.name and number else None

    def build(self, interface: Interface, device: str = "cpu") -> RewardModel:
        model = BeyondOne(interface)
        model.sure = self.sure
        return model


def test_a_reward_is_a_config_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sort is found by its text, listed by messages and built, without another line."""
    monkeypatch.setitem(REWARDS, "mine", MineReward)
    config = reward_config("mine@0.25")
    assert config == MineReward(0.25) and config.is_privileged and not config.recorded
    model = make_reward("mine@0.25", INTERFACE)
    assert isinstance(model, BeyondOne) and model.sure == 0.25
    with pytest.raises(BadInput, match="mine@<number>"):
        reward_config("theirs")


class ModellessReward(RewardConfig):
    """A sort whose `build` was forgotten."""

    name = usage = "modelless"


def test_a_reward_that_builds_no_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REWARDS, "modelless", ModellessReward)
    said = "--critic: got modelless, whose ModellessReward.build makes none, expected a RewardModel"
    with pytest.raises(BadInput, match=f"^{said}$"):
        make_reward_model("modelless", INTERFACE, "cpu", "--critic")


def test_the_table_loads_no_torch() -> None:
    code = "import sys, robolearn.rewards.choice; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
