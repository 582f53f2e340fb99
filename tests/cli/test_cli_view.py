"""`--view` of collect, finetune and evaluate: who watches changes no result to the bit, and sees whole episodes."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware" / "teleop"))
from browser_driver import Chromium

from hardware.teleop.browser.viewer import Viewer
from hardware.teleop.device import Status
from robolearn.cli import view as view_module
from robolearn.cli.finetune import standing
from robolearn.cli.main import main
from robolearn.cli.view import Player
from robolearn.rollout.engine import execute
from robolearn.rollout.watched_env import Clip, WatchedEnv
from robolearn.runs.run import read_metrics
from robots import PANDA
from sim.registry import make_env


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


class Page:
    """What a page would be told."""

    watched = True

    def __init__(self) -> None:
        self.shown: list[Status] = []
        self.closed = False

    def show(self, status: Status) -> None:
        self.shown.append(status)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clips(monkeypatch: pytest.MonkeyPatch) -> list[Clip]:
    """Every episode of the first world, as it is handed to the page: one is always wanted."""
    found: list[Clip] = []
    monkeypatch.setattr(Player, "wants", property(lambda player: True))
    monkeypatch.setattr(Player, "give", lambda player, clip: found.append(clip))
    return found


def digest(folder: Path) -> str:
    """Of every file that holds numbers."""
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".safetensors", ".parquet", ".mp4"))
    assert files
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def judged(clips: list[Clip]) -> None:
    """Each is an episode from its start, in which the arm moves from step to step and nothing jumps."""
    assert [clip.number for clip in clips] == sorted({clip.number for clip in clips})
    for clip in clips:
        joints = np.array([joints for joints, _, _ in clip.frames])
        poses = np.array([scene.poses for _, _, scene in clip.frames])
        assert len(joints) > 2 and clip.outcome in ("solved", "not solved")
        turned = np.abs(np.diff(joints, axis=0)).max(axis=1)
        assert 0 < turned.max() < 0.3 and (turned > 0).mean() > 0.5
        assert np.abs(np.diff(poses[..., :3], axis=0)).max() < 0.1
    starts = {clip.frames[0][2].poses.round(6).tobytes() for clip in clips}
    assert len(starts) == len(clips)  # of every episode its own


@pytest.mark.long
def test_finetune_learns_the_same_while_somebody_watches(bc: Path, tmp_path: Path, clips: list[Clip]) -> None:
    args = ["finetune", "--policy", bc, "--worlds", 4, "--decisions", 25, "--minibatch", 25, "--sigma-max", 0.1,
            "--env-steps", 4000, "--reward", "dense", "--json"]  # fmt: skip
    rows = {}
    for view in ("none", "browser"):
        assert run(*args, "--out", tmp_path / view, "--view", view) == 0
        rows[view] = [{k: v for k, v in row.items() if not k.endswith("_s")} for row in read_metrics(tmp_path / view)]
    assert clips and any("iteration" in clip.note for clip in clips)
    judged(clips)
    assert repr(rows["none"]) == repr(rows["browser"]) and len(rows["none"]) > 3
    assert digest(bc / "policy") != digest(tmp_path / "none" / "policy") == digest(tmp_path / "browser" / "policy")


@pytest.mark.long
def test_evaluate_and_collect_find_the_same_while_somebody_watches(
    bc: Path, tmp_path: Path, clips: list[Clip], capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for view in ("none", "browser"):
        args = ["--episodes", 12, "--worlds", 4, "--json", "--view", view]
        capsys.readouterr()
        assert run("evaluate", "--policy", bc, *args) == 0
        result = json.loads(capsys.readouterr().out)
        assert run("collect", *args, "--out", tmp_path / view) == 0
        found.append({key: value for key, value in result.items() if "wall" not in key})
    assert found[0] == found[1]
    assert digest(tmp_path / "none") == digest(tmp_path / "browser")
    assert len(clips) == 6 and {clip.note for clip in clips[:3]} == {str(bc)}  # three of four worlds' twelve, twice
    judged(clips[:3])
    judged(clips[3:])


@pytest.mark.long
def test_both_ways_through_a_chunk_are_one(clips: list[Clip]) -> None:
    """Random chunks, worlds that rest, episodes that end within a chunk: by the fast path and noted."""
    envs: list[Any] = [make_env("lift", 3, threads=1) for _ in range(2)]
    page = Page()
    noted = WatchedEnv(envs[1], Player(page, "learning", 20.0), [len(PANDA.joints)])
    try:
        now = [env.reset(seed=5)[0] for env in (envs[0], noted)]
        rng = np.random.default_rng(1)
        ends = 0
        for _ in range(60):
            chunks = rng.uniform(-1.0, 1.0, (3, 8, 7)).astype(np.float32)
            active = rng.random(3) < 0.8
            if not active.any():
                continue
            plain, other = (
                execute(env, chunks, active, obs, None) for env, obs in zip((envs[0], noted), now, strict=True)
            )
            ends += int((plain.terminated | plain.truncated).sum())
            for name in ("rewards", "steps", "terminated", "truncated", "success"):
                assert np.array_equal(getattr(plain, name), getattr(other, name)), name
            ended = plain.terminated | plain.truncated
            for key in plain.observation:
                assert np.array_equal(plain.observation[key], other.observation[key])
                assert not ended.any() or np.array_equal(plain.final[key][ended], other.final[key][ended])
            now = [plain.observation, other.observation]
        assert ends > 3 and clips
        before = noted.snapshot()
        assert before is not None and envs[0].snapshot().keys() == before.keys()
        noted.restore(before)
        assert noted.clip is None
    finally:
        noted.close()
        envs[0].close()
    assert page.closed


def test_a_clip_of_two_arms_has_the_joints_and_the_gripper_of_each(clips: list[Clip]) -> None:
    env: Any = make_env("lift_two", 1, threads=1)
    page = Page()
    noted = WatchedEnv(env, Player(page, "collecting", 20.0), [7, 7])
    try:
        noted.reset(seed=0)
        action = np.tile(np.array([[0.0] * 6 + [1.0] + [0.0] * 6 + [-1.0]], np.float32), (1, 1))
        for _ in range(12):
            noted.step(action)
        assert noted.clip is not None
        joints, openings, _ = noted.clip.frames[-1]
        before = env.truth
        assert joints.shape == (14,) and np.abs(joints - before.q[0]).max() < 0.05
        assert np.abs(openings - before.width[0]).max() < 0.02 and openings[0] > openings[1] + 0.03
    finally:
        noted.close()


def test_nothing_is_noted_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = make_env("lift", 2, threads=1)
    page = Page()
    page.watched = False  # type: ignore[misc]
    noted = WatchedEnv(env, Player(page, "learning", 20.0), [len(PANDA.joints)])
    try:
        monkeypatch.setattr(env, "scene", lambda world: pytest.fail("drawn for nobody"))
        noted.reset(seed=0)
        fast: list[Any] = []
        step_chunk = env.step_chunk
        monkeypatch.setattr(env, "step_chunk", lambda *args: (fast.append(1), step_chunk(*args))[1])
        for _ in range(30):
            noted.step_chunk(np.zeros((2, 8, 7), np.float32))
        assert len(fast) == 30 and page.shown == []
    finally:
        noted.close()


@pytest.mark.long
def test_a_clip_is_played_at_the_arms_own_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "END_S", 0.05)
    page = Page()
    player = Player(page, "learning", 20.0)
    scene: Any = None
    frames = [(np.full(7, 0.1 * i), 0.04, scene) for i in range(11)]
    try:
        begun = time.monotonic()
        player.give(Clip(4, frames, "solved", "iteration 3: 80% success"))
        while len(page.shown) < 11:
            assert time.monotonic() - begun < 20.0
            time.sleep(0.005)
        assert 0.45 < time.monotonic() - begun < 5.0
    finally:
        player.close()
    assert [status.joints[0] for status in page.shown] == [0.1 * i for i in range(11)]  # type: ignore[index]
    assert {status.message for status in page.shown[:-1]} == {"iteration 3: 80% success"}
    assert page.shown[-1].message == "solved · iteration 3: 80% success" and page.shown[-1].episode == 4
    assert page.shown[-1].seconds == pytest.approx(0.5) and page.closed


def test_the_line_says_how_far_it_is() -> None:
    assert standing(3, {"success": 0.8}) == "iteration 3: 80% success with exploration noise"
    assert standing(3, {"success": float("nan")}) == standing(3, {}) == "iteration 3"


@pytest.mark.parametrize("command", ["finetune", "evaluate"])
def test_worlds_of_others_cannot_be_shown(
    command: str, bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", tmp_path / "run"] if command == "finetune" else []
    assert run(command, "--policy", bc, "--task", "gym:x:Y-v0", "--view", "browser", *out) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--view" in line and "gym:x:Y-v0" in line and "a task of ours" in line


# --- in a real Chromium ----------------------------------------------------------------------------------------------


@pytest.fixture
def acting() -> Iterator[Callable[[WatchedEnv], None]]:
    """Lets the worlds go on at random, in a thread."""
    end, threads = threading.Event(), []

    def start(env: WatchedEnv) -> None:
        def act() -> None:
            rng = np.random.default_rng(0)
            while not end.is_set():
                env.step_chunk(rng.uniform(-1.0, 1.0, (2, 8, 7)).astype(np.float32))
                time.sleep(0.01)

        threads.append(threading.Thread(target=act, daemon=True))
        threads[-1].start()

    yield start
    end.set()
    for thread in threads:
        thread.join(10.0)


@pytest.mark.long
@pytest.mark.realtime
def test_the_page_shows_an_episode_and_how_it_ended(acting: Callable[[WatchedEnv], None]) -> None:
    env: Any = make_env("lift", 2, threads=1)
    viewer = Viewer(PANDA, "The fine-tuning is over.")
    viewer.open()
    noted = WatchedEnv(env, Player(viewer, "learning", 20.0), [len(PANDA.joints)])
    noted.note = "iteration 7: 40% success"
    try:
        noted.reset(seed=0)
        acting(noted)
        with Chromium() as chromium:
            tab = chromium.open(viewer.url, (800, 600), sharpness=0.25)
            line = "document.querySelector('[data-robolearn-view]')"
            tab.wait(f"{line}?.innerText.includes('learning · episode')", 90.0)
            tab.wait(f"{line}.innerText.includes('iteration 7: 40% success')")
            assert len(tab.meshes()) > 3
            tab.wait(f"/(not )?solved · iteration 7/.test({line}.innerText)", 60.0)
            noted.player.close()
            tab.wait("document.querySelector('#robolearn-over').innerText.includes('The fine-tuning is over.')", 10.0)
    finally:
        noted.player.close()
