"""A reward model in the learner: asked once for each episode, on a thread, withheld where it does not answer."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, load_file

from robolearn.core import BadInput, RobolearnError, Score, Window
from robolearn.data.replay import EpisodeKey, PlayedEpisode, ReplayStep, ScoreLog, StoredScore, TransitionLog
from robolearn.data.replay.scores import decode, encode
from robolearn.hil import scoring as scorings
from robolearn.hil.learner import result_of
from robolearn.hil.scoring import EpisodeScoring
from robolearn.rl.replay_runner import RewardModel
from robolearn.runs import read_metrics

sys.path.insert(0, str(Path(__file__).parent))
import scored_learner
from classroom import SCHEMA, Classroom, desk, make_lesson, play
from test_hil_learner import Bench, episode, everything

PRIMES = (7, 11, 13, 17, 19, 23)  # the reward of a step of episode 0, 1, …
WAIT_S, GAMMA = 20.0, 0.99


def number_of(window: Window) -> int:
    return int(window.observation["proprio"][0, 0])


class ByNumber:
    """Progress that pays a prime a step, by the episode's number; `hold` is waited for, `faults` answers for some. It
    notes whom it saw."""

    def __init__(self, **faults: Callable[[Window], Any]) -> None:
        self.faults, self.asked, self.prompts = {int(k[1:]): v for k, v in faults.items()}, [], []
        self.hold = threading.Event()
        self.hold.set()

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        self.asked += [number_of(window) for window in windows]
        self.prompts += prompts
        assert self.hold.wait(WAIT_S)
        return [self.faults.get(number_of(w), self.prime)(w) for w in windows]

    def prime(self, window: Window, reward: float = 0.0) -> Score:
        n = len(window)
        reward = reward or PRIMES[number_of(window)]
        progress = np.zeros(n + 1)
        for t in range(n):  # r = γ Φ_t − Φ_{t−1}
            progress[t + 1] = (reward + progress[t]) / GAMMA
        paid, sure = np.full(n, reward, np.float32), np.ones(n, np.float32)
        return Score(progress[1:].astype(np.float32), paid, np.zeros(n, bool), sure)


def fails(_: Window) -> Score:
    raise ValueError("no eyes\nand no ears")


def leaves(_: Window) -> Score:
    raise SystemExit(3)


def not_a_number(window: Window) -> Score:
    return ByNumber().prime(window, float("nan"))


def too_short(window: Window) -> Score:
    n = len(window) - 1
    return Score(*(np.zeros(n, kind) for kind in (np.float32, np.float32, bool, np.float32)))


class Scored(Bench):
    """A learner fed by hand, with a reward model."""

    def __init__(self, folder: Path, model: RewardModel, pace: str = "realtime", name: str = "m", timeout_s: float = 60,
                 **settings: Any) -> None:  # fmt: skip
        self.scoring = EpisodeScoring(model, name, ScoreLog(folder / "log"), timeout_s)
        super().__init__(folder, make_lesson(pace, utd=0.5), scoring=self.scoring, **settings)

    def until(self, reached: Callable[[], bool]) -> None:
        """Work until that is so."""
        end = time.monotonic() + WAIT_S
        while not reached():
            assert time.monotonic() < end, "it does not come"
            if not self.learner.step():
                time.sleep(0.002)

    def learned(self, count: int) -> None:
        self.until(lambda: len(self.learner.experience.outcomes) >= count and not self.learner.due)

    def close(self) -> None:
        self.scoring.close()
        super().close()


def read_records(path: Path) -> Iterator[dict[str, np.ndarray]]:
    """As they are on disk, by their lengths alone."""
    content = path.read_bytes() if path.exists() else b""
    while len(content) >= 8:
        (length,) = struct.unpack("<I", content[:4])
        if len(content) < 8 + length:
            return
        yield load(content[8 : 8 + length])
        content = content[8 + length :]


@pytest.mark.long
def test_killed_and_resumed_it_asks_for_nothing_twice_and_learns_the_same(tmp_path: Path) -> None:
    """SIGKILL in another process, in the middle of scoring: the weights are those of a run that nobody disturbed."""
    log = TransitionLog(tmp_path / "log", "a", SCHEMA)
    for number in range(12):
        for record in episode(number, 9 + number % 3, helped=(1, 2) if number % 4 == 0 else ()):
            log.append(SCHEMA.encode(record))
    log.close()
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        shutil.copytree(tmp_path / "log", folder / "log")
    command = [sys.executable, scored_learner.__file__, str(killed)]
    with subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}) as first:
        scored_learner.learn(whole, 0.0)
        until = time.monotonic() + 60
        while sum(1 for _ in read_records(killed / "log" / "scores")) < 5:
            assert time.monotonic() < until and first.poll() is None
            time.sleep(0.005)
        first.send_signal(signal.SIGKILL)
    assert list((killed / "run" / "state").glob("state-*")), "it was killed before its first checkpoint"
    scored = sum(1 for _ in read_records(killed / "log" / "scores"))
    before = len((killed / "calls").read_text().split())
    assert 5 <= scored <= before <= scored + 1 < 12
    scored_learner.learn(killed, 0.0)
    calls = (killed / "calls").read_text().split()
    assert sorted(map(int, calls[before:])) == list(range(scored, 12)), "only what was not in the log is asked again"
    assert sorted(map(int, (whole / "calls").read_text().split())) == list(range(12))
    states = [load_file(next((f / "run" / "state").glob("state-*")) / "tensors.safetensors") for f in (whole, killed)]
    assert states[0].keys() == states[1].keys() and len(states[0]) > 10
    for key, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][key], err_msg=key)
    rows = [
        [{k: v for k, v in row.items() if k != "wall_s"} for row in read_metrics(f / "run")] for f in (whole, killed)
    ]
    assert rows[0] == rows[1] and [row["withheld"] for row in rows[0]] == [n == 3 for n in range(12)]
    assert rows[0][-1]["updates"] == 10 * 8 - 10 and rows[0][-1]["success"], "each is done after its eighth step"


def test_each_episode_gets_its_own_rewards(tmp_path: Path) -> None:
    """Two actors, episodes of other lengths that end in another order than they began."""
    bench = Scored(tmp_path, ByNumber())
    left, right = episode(0, 9), episode(1, 6)
    bench.send("a", left[:4])
    bench.send("b", right)
    bench.send("a", left[4:])
    bench.send("b", episode(2, 12)[:7])  # then it crashes
    bench.send("b", episode(3, 8))
    bench.send("a", episode(4, 5))
    bench.learned(5)
    outcomes = bench.learner.experience.outcomes
    assert [o.steps for o in outcomes] == [6, 9, 6, 8, 5]
    assert [o.reward for o in outcomes] == pytest.approx([6 * 11, 9 * 7, 6 * 13, 8 * 17, 5 * 19], rel=1e-5)
    online = bench.learner.experience.online
    batch = online.gather(torch.arange(len(online)), 1.0, torch.Generator().manual_seed(0))
    ratio = batch.reward / torch.tensor(PRIMES)[batch.observation["proprio"][:, 0].long()]
    assert len(ratio) > 20 and set(ratio.numpy().round(4).tolist()) <= {1.0, 2.0, 3.0}, "one to three steps a window"
    bench.close()


def test_a_late_model_stalls_neither_updates_nor_records(tmp_path: Path) -> None:
    model = ByNumber()
    bench = Scored(tmp_path, model)
    bench.send("a", episode(0, 40))
    bench.until(lambda: len(bench.learner.experience.outcomes) == 1)
    assert bench.learner.updates == 0 and bench.learner.due
    model.hold.clear()
    bench.send("a", episode(1, 10) + episode(2, 10)[:4])
    bench.until(lambda: model.asked == [0, 1] and not bench.learner.due and not bench.receiver.waits)
    assert bench.learner.updates == 15 == 0.5 * (40 - 10), "those that the first episode pays for, while it thinks"
    assert bench.learner.experience.taken == {"a": 41 + 11 + 4} and bench.learner.experience.env_steps == 40
    assert not bench.learner.step() and len(bench.learner.experience.outcomes) == 1
    model.hold.set()
    bench.learned(2)
    assert bench.learner.updates == 20 and bench.learner.experience.env_steps == 50
    bench.close()


def test_in_lockstep_the_score_is_waited_for(tmp_path: Path) -> None:
    model = ByNumber()
    model.hold.clear()
    bench = Scored(tmp_path, model, "lockstep")
    bench.send("a", episode(0, 20) + episode(1, 20))
    bench.until(lambda: model.asked == [0])
    for _ in range(20):
        assert not bench.learner.step()
    assert bench.learner.experience.taken == {"a": 21} and bench.state.processed("a", 0, 0.0) < 21
    model.hold.set()
    bench.learned(1)
    assert bench.learner.updates == 5 and bench.state.processed("a", 0, 0.0) == 21
    bench.learned(2)
    assert bench.learner.updates == 15
    bench.close()


def test_only_so_many_episodes_wait_for_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorings, "QUEUED", 2)
    model = ByNumber()
    model.hold.clear()
    bench = Scored(tmp_path, model)
    bench.send("a", [record for n in range(5) for record in episode(n, 5)])
    bench.until(lambda: bench.scoring.full)
    assert not bench.learner.step() and bench.learner.experience.taken == {"a": 12} and bench.receiver.waits
    began = time.monotonic()
    bench.receiver.wait(0.2, held=True)
    assert time.monotonic() - began > 0.1, "what is held does not make it spin"
    model.hold.set()
    bench.learned(5)
    assert model.asked == [0, 1, 2, 3, 4]
    bench.close()


@pytest.mark.long
@pytest.mark.parametrize("fault", [fails, leaves, not_a_number, too_short])
def test_what_has_no_score_is_withheld_and_said_once(
    tmp_path: Path, fault: Callable[[Window], Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = ByNumber(_1=fault, _3=fault)
    bench = Scored(tmp_path, model)
    with caplog.at_level(logging.WARNING, "robolearn"):
        bench.send("a", [r for n in range(5) for r in episode(n, 6 + n, success=n == 3, helped=(1, 2, 3))])
        bench.learned(5)
    said = [message for message in caplog.messages if "withheld" in message]
    assert len(said) == 1 and "episode 1 of a" in said[0] and "\n" not in said[0]
    outcomes = bench.learner.experience.outcomes
    assert [o.withheld for o in outcomes] == [False, True, False, True, False] and not outcomes[3].success
    assert bench.learner.experience.env_steps == 6 + 8 + 10 and bench.learner.experience.withheld_steps == 7 + 9
    for buffer in (bench.learner.experience.online, bench.learner.experience.demonstrations):
        numbers = buffer.gather(torch.arange(len(buffer)), 1.0, torch.Generator()).observation["proprio"][:, 0]
        assert set(numbers.tolist()) == {0.0, 2.0, 4.0}
    assert result_of(bench.learner)["withheld"] == 2 and result_of(bench.learner)["episodes"] == 5
    assert [row["withheld"] for row in read_metrics(tmp_path / "run")] == [False, True, False, True, False]
    bench.learner.save()
    before = everything(bench.learner.experience)
    bench.close()
    again = Scored(tmp_path, model)
    assert model.asked == [0, 1, 2, 3, 4], "what is withheld is not asked for again"
    assert [o.withheld for o in again.learner.experience.outcomes] == [False, True, False, True, False]
    after = everything(again.learner.experience)
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    again.close()


def test_a_model_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    model = ByNumber()
    model.hold.clear()
    bench = Scored(tmp_path, model, timeout_s=0.15)
    bench.send("a", episode(0, 8) + episode(1, 8))
    bench.learned(2)
    assert [o.withheld for o in bench.learner.experience.outcomes] == [True, True]
    model.hold.set()  # its answer comes after all
    bench.send("a", episode(2, 8))
    bench.learned(3)
    assert [o.withheld for o in bench.learner.experience.outcomes] == [True, True, False]
    assert model.asked == [0, 2], "the second one was withheld before its turn came"
    stored = ScoreLog(tmp_path / "log")
    reasons = [stored.find(EpisodeKey("a", n, 8, ""), "m").withheld for n in range(3)]  # type: ignore[union-attr]
    assert reasons == ["no score within 0.15 s"] * 2 + [""]
    bench.close()


def test_a_run_of_withheld_episodes_ends_with_its_budget(tmp_path: Path) -> None:
    bench = Scored(tmp_path, ByNumber(_0=fails, _1=fails))
    bench.learner.budget = bench.learner.budget.__class__(env_steps=15)
    bench.send("a", episode(0, 8) + episode(1, 8))
    bench.learned(2)
    assert bench.learner.finished and bench.learner.updates == 0 and bench.learner.experience.env_steps == 0
    bench.close()


def test_another_model_is_said_and_scores_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Scored(tmp_path, ByNumber(_1=fails))
    bench.send("a", episode(0, 12) + episode(1, 12))
    bench.learned(2)
    bench.learner.save()
    bench.close()
    other = ByNumber(_0=lambda window: ByNumber().prime(window, -1.0))
    with caplog.at_level(logging.WARNING, "robolearn"):
        again = Scored(tmp_path, other, name="another")
    assert other.asked == [0, 1] and any("another one than before" in message for message in caplog.messages)
    outcomes = again.learner.experience.outcomes
    assert [o.reward for o in outcomes] == pytest.approx([-12.0, 12 * 11.0], rel=1e-5)
    assert not any(o.withheld for o in outcomes)
    again.close()
    first = ByNumber()
    back = Scored(tmp_path, first)
    assert not first.asked and [o.withheld for o in back.learner.experience.outcomes] == [False, True]
    back.close()


def test_demonstrations_are_scored_once_too(tmp_path: Path) -> None:
    seen = {"proprio": np.full((8, 2), 2, np.float32)}
    shown = PlayedEpisode(
        seen, np.zeros((8, 1), np.float32), np.zeros(8, np.float32), np.ones(8, bool), False, True, "go"
    )
    model = ByNumber()
    for content in ("abc", "abc", "def"):
        scoring = EpisodeScoring(model, "m", ScoreLog(tmp_path), 60.0)
        stored = scoring.score_demonstration(content, 4, shown)
        assert stored.score is not None and stored.score.reward.tolist() == [13.0] * 8
        scoring.close()
    assert model.asked == [2, 2] and model.prompts == ["go"] * 2, "once for each set"


def test_waiting_for_a_score_ends_when_the_learner_is_stopped(tmp_path: Path) -> None:
    model, asked = ByNumber(), []
    model.hold.clear()
    scoring = EpisodeScoring(model, "m", ScoreLog(tmp_path), 60.0, stop=lambda: asked.append(1) or len(asked) > 3)
    with pytest.raises(KeyboardInterrupt):
        scoring.score_demonstration("abc", 0, shown_episode())
    model.hold.set()
    scoring.close()


def test_a_model_that_ends_the_process_is_asked_three_times(tmp_path: Path) -> None:
    for _ in range(3):
        model = ByNumber()
        model.hold.clear()
        scoring = EpisodeScoring(model, "m", ScoreLog(tmp_path), 60.0)
        scoring.submit(scorings.ClosedEpisode("a", 1, 9, False, shown_episode()))
        end = time.monotonic() + WAIT_S
        while not model.asked:
            assert time.monotonic() < end
            time.sleep(0.001)
        scoring.close()  # what comes later is stored nowhere, as after a kill
        model.hold.set()
    model = ByNumber()
    scoring = EpisodeScoring(model, "m", ScoreLog(tmp_path), 60.0)
    first, second = (
        scoring.score_now(scorings.ClosedEpisode("a", number, 9, False, shown_episode())) for number in (1, 2)
    )
    assert first.score is None and "ended 3 times" in first.withheld
    assert second.score is not None and model.asked == [0], "which is what its frames say; the second one alone"
    scoring.close()


def test_a_full_disk_ends_the_learner_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    bench = Scored(tmp_path, ByNumber())
    monkeypatch.setattr("robolearn.io.append_only.Journal.append", full)
    bench.scoring.submit(scorings.ClosedEpisode("a", 0, 9, False, shown_episode()))
    with pytest.raises(RobolearnError, match="log of scores cannot be written: No space"):
        bench.learned(1)
    bench.close()


def test_the_task_s_words_travel_with_the_episode(tmp_path: Path) -> None:
    """From the actor's world through its outbox and the wire to the model, a cut episode's too."""
    model = ByNumber()
    bench = Scored(tmp_path, model)
    first, second = episode(0, 6), episode(1, 6)
    bench.send("a", [replace(first[0], task="open the drawer"), *first[1:4]])  # then it crashes
    bench.send("a", [replace(second[0], task="schließe die Tür"), *second[1:]])
    bench.send("a", episode(2, 6))
    bench.learned(3)
    assert model.asked == [0, 1, 2] and model.prompts == ["open the drawer", "schließe die Tür", ""]
    bench.close()
    room = Classroom(tmp_path / "room", make_lesson(), env_steps=30)
    played = play(tmp_path / "outbox", room.port)
    room.close()
    steps = [record for record in played.records if isinstance(record, ReplayStep)]
    assert [step.task for step in steps] == ["go right" if step.index == 0 else "" for step in steps]


def test_an_actor_without_words_is_refused_where_the_model_reads_them(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson("realtime"), needs_words=True, env_steps=10**6)
    for words, refused in (("", True), ("  ", True), ("go right", False)):
        with desk(tmp_path / "outbox", room.port) as ours:
            ours.link.task = words
            if refused:
                with pytest.raises(BadInput, match="the task in words"):
                    ours.link.open(lambda: False)
            else:
                assert ours.link.open(lambda: False) is not None
    room.stop()


def shown_episode() -> PlayedEpisode:
    seen = {"proprio": np.zeros((9, 2), np.float32)}
    return PlayedEpisode(seen, np.zeros((8, 1), np.float32), np.zeros(8, np.float32), np.zeros(8, bool), False, False)


def test_the_log_of_scores_keeps_what_it_is_given_and_refuses_the_rest(tmp_path: Path) -> None:
    score = Score(*(np.arange(3).astype(kind) for kind in (np.float32, np.float32, bool, np.float32)))
    key = EpisodeKey("a", 4, 3, "hebe den Würfel")
    log = ScoreLog(tmp_path)
    log.append(StoredScore(key, "m", score))
    log.append(StoredScore(EpisodeKey("a", 5, 3, ""), "m", None, "blind"))
    log.close()
    whole = (tmp_path / "scores").read_bytes()
    (tmp_path / "scores").write_bytes(whole[:-3])  # a kill cut the last one short
    log = ScoreLog(tmp_path)
    found = log.find(key, "m")
    assert found is not None and found.score is not None and log.models == {"m"}
    for name, value in vars(score).items():
        np.testing.assert_array_equal(getattr(found.score, name), value)
        assert getattr(found.score, name).dtype == value.dtype
    for other in (EpisodeKey("b", 4, 3, key.task), EpisodeKey("a", 5, 3, key.task), EpisodeKey("a", 4, 2, key.task),
                  EpisodeKey("a", 4, 3, "go"), EpisodeKey("a", 5, 3, "")):  # fmt: skip
        assert log.find(other, "m") is None
    assert log.find(key, "another") is None
    log.close()
    wrong = encode(StoredScore(EpisodeKey("a", 4, 2, ""), "m", score))
    for content in (b"", b"{}", wrong, SCHEMA.encode(episode(0, 1)[0])):
        with pytest.raises(BadInput, match="log of scores"):
            decode(content)
