"""Videos decode with the right frames, and show the episodes that they say."""

from __future__ import annotations

import logging
from pathlib import Path

import av
import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.eval import video
from robolearn.eval.evaluation import evaluate
from robolearn.eval.video import choose_episodes, record_episodes, write_video


def decode(path: Path) -> tuple[np.ndarray, tuple]:
    """All frames, and (codec, pixel format, frames per second)."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(stream)])
        return frames, (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate)


def test_a_video_decodes_to_its_frames(tmp_path: Path) -> None:
    frames = [np.full((61, 95, 3), 8 * i, np.uint8) for i in range(30)]
    assert write_video(tmp_path / "deep" / "a.mp4", frames, fps=20) == 30
    decoded, facts = decode(tmp_path / "deep" / "a.mp4")
    assert decoded.shape == (30, 62, 96, 3)  # padded to even
    assert np.abs(decoded.mean(axis=(1, 2, 3)) - 8 * np.arange(30)).max() < 4
    assert facts == ("h264", "yuv420p", 20)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.mp4"]


def test_bad_frames_leave_nothing_behind(tmp_path: Path) -> None:
    bad: list[list] = [[], [np.zeros((4, 4, 3))], [np.zeros((4, 4, 3), np.uint8), np.zeros((4, 6, 3), np.uint8)]]
    for frames in bad:
        with pytest.raises(BadInput, match=r"got .* expected"):
            write_video(tmp_path / "a.mp4", frames, fps=20)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_worst_and_best_are_recorded_as_they_were(fake, tmp_path: Path) -> None:
    env = fake.Env(6, lambda d, solved: (5 + int(20 * d)) if solved else 30)
    policy = fake.Policy(0.6, execute_steps=3, noise=0.3)
    evaluation = evaluate(env, policy, 50, seed=4)
    worst, best = choose_episodes(evaluation)
    assert not evaluation.succeeded[worst.row] and evaluation.index[worst.row] == 0
    assert evaluation.steps[best.row] == evaluation.solved_s.min() * 20

    env.calls.clear()
    videos = record_episodes(env, policy, evaluation, tmp_path, title="imitation", choices=[worst, best])
    resting = np.ones(6, bool)
    resting[evaluation.world[[worst.row, best.row]]] = False
    assert not np.any([call[resting] for call in env.calls])

    for film, choice in zip(videos, (worst, best), strict=True):
        steps, index = evaluation.steps[choice.row], evaluation.index[choice.row]
        decoded, _ = decode(film.path)
        assert len(decoded) == steps + 20  # and the last one stands for a second
        below = decoded[:, decoded.shape[1] // 2 :]  # of what is written into them
        left, right = below[:, :, :20].mean(axis=(1, 2, 3)), below[:, :, 30:].mean(axis=(1, 2, 3))
        assert np.abs(left - 10 * index).max() < 6
        assert np.abs(right[:steps] - 5 * np.arange(steps)).max() < 6
    assert videos[0].caption.startswith("imitation, worst: failed (world ")
    assert "not solved in 1.5 s" in videos[0].caption and "quickest success" in videos[1].caption


def test_time_and_outcome_are_written_into_the_pictures(fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(video, "written", lambda picture, text: said.append(text) or picture)
    env = fake.Env(6, lambda d, solved: 5 if solved else 30)
    policy = fake.Policy(0.6, execute_steps=3, noise=0.3)
    record_episodes(env, policy, evaluate(env, policy, 50, seed=4), tmp_path)
    assert said[0] == "0.0 s" and said[29] == "1.4 s"  # the 30th step of 1/20 s has not been made
    assert said[30] == "not solved in 1.5 s" and said[-1].startswith("solved in 0.")
    monkeypatch.undo()
    plain = np.full((360, 480, 3), 200, np.uint8)
    shown = video.written(plain, "solved in 1.2 s").astype(int) - plain
    assert (plain == 200).all() and not shown[60:].any() and not shown[:, 300:].any()
    assert (shown[:20, :100] < 0).mean() > 0.5 and (shown > 0).any()  # white on dark


def test_all_succeed_or_all_fail(fake) -> None:
    env = fake.Env(3, lambda d, solved: 3 + int(9 * d))
    worst, best = choose_episodes(evaluate(env, fake.Policy(2.0), 20, seed=0))
    assert worst.reason == "slowest success" and best.reason == "quickest success"
    (worst,) = choose_episodes(evaluate(env, fake.Policy(-1.0), 20, seed=0))
    assert worst.reason == "failed"


def test_a_world_that_cannot_be_drawn_says_so(fake, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    env, policy = fake.Env(3, lambda d, solved: 3), fake.Policy(0.5)
    evaluation = evaluate(env, policy, 6, seed=0)
    env.draws = False
    with caplog.at_level(logging.WARNING):
        assert record_episodes(env, policy, evaluation, tmp_path) == []
    assert "cannot be drawn" in caplog.text and list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="worlds to record: got 4, expected 3"):
        record_episodes(fake.Env(4, lambda d, solved: 3), policy, evaluation, tmp_path)


def test_an_episode_that_does_not_repeat_is_noticed(fake, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    env = fake.Env(3, lambda d, solved: 3)
    evaluation = evaluate(env, fake.Policy(0.5), 6, seed=0)
    env.length = lambda d, solved: 5
    with caplog.at_level(logging.WARNING):
        videos = record_episodes(env, fake.Policy(0.5), evaluation, tmp_path)
    assert "did not repeat itself" in caplog.text and videos
