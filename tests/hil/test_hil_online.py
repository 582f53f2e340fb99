"""A reward model that ends episodes: at the verdict that a record's own frames say, and without a late control step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import BadInput, Interface, Score, Window
from robolearn.data.replay import End, Record, RecordSchema, ReplayStep
from robolearn.examples.lifted import Lifted
from robolearn.hil.actor import ActorLoop
from robolearn.hil.agent import DoubleBufferedPolicy
from robolearn.hil.learner_process import reward_model
from robolearn.hil.outbox import Outbox
from robolearn.hil.settings import CurriculumConfig, LearnerConfig
from robolearn.hil.wire.messages import Period
from robolearn.rewards.online import OnlineDone
from robolearn.rl.off_policy_settings import ProposalsConfig
from sim.experts import make_operator
from sim.registry import make_env

sys.path.insert(0, str(Path(__file__).parent))
from classroom import Classroom, LineWorld, make_lesson, play

GRASP, RAISED = (0.01, 0.06), 0.03  # of the gripper's width, and of the tcp above the table [m]


class Held:
    """`lift` by proprioception alone: done while the gripper holds something, 3 cm up. The world asks for more."""

    def __init__(self, interface: Interface) -> None:
        names = interface.observation["proprio"].names
        self.height, self.width = names.index("tcp_z"), names.index("gripper_width")

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        assert set(prompts) == {"lift the cube"}
        return [self.score_one(window) for window in windows]

    def score_one(self, window: Window) -> Score:
        after = window.observation["proprio"][1:]
        height, width = after[:, self.height], after[:, self.width]
        done = (height > RAISED) & (width > GRASP[0]) & (width < GRASP[1])
        progress = np.clip(height / 0.3, 0, 1).astype(np.float32)
        return Score(progress, done.astype(np.float32), done, np.ones(len(window), np.float32))


class Alone:
    """What an actor sees of a link whose learner has all the weights that it will ever have."""

    alive, period, progress, acknowledged, finished = True, Period(), None, 0, False

    def __init__(self, episodes: int) -> None:
        self.left = episodes

    def synchronize(self, stop: Callable[[], bool]) -> bool:
        self.left -= 1
        return self.left >= 0

    def notify(self) -> None: ...

    def drain(self, timeout_s: float) -> None: ...


def lift(folder: Path, *, done_hz: float, frames: int, episodes: int = 2) -> list[Record]:
    """Episodes that the script shows, in the embedded simulation."""
    env = make_env("lift", 1, threads=1)
    env.max_episode_steps = 100
    torch.manual_seed(0)
    flow = FlowConfig(horizon=3, execute=3, network=NetworkConfig(width=8, depth=1))
    base = ChunkPolicy(flow.build(env.interface), Normalizer(env.interface), env.interface)
    settings = ProposalsConfig(width=8, depth=1, critics=2, subset=1, proposals=2, backup_proposals=1)
    shows = CurriculumConfig(free=1.0, free_steps=10**6, revisit=0.0)
    config = LearnerConfig(algo="proposals", settings=settings, seed=5, curriculum=shows)
    buffered = DoubleBufferedPolicy(lambda: settings.build(base, seed=0))
    buffered.load(0, buffered.like)
    done = None
    if done_hz:
        done = OnlineDone([Held(env.interface)], env.interface.control_hz, done_hz, frames=frames, waits=True)
    outbox = Outbox(folder, "a", RecordSchema(base.interface))
    link: Any = Alone(episodes)
    actor = ActorLoop(
        env, buffered, link, outbox, config, "a", tuple(base.interface.observation),
        lambda seed: make_operator("lift", env.interface, 1, seed), done=done,
    )  # fmt: skip
    actor.run(lambda: False)
    found = list(outbox.read())
    outbox.close()
    env.close()
    return found


def split(records: Sequence[Record]) -> list[tuple[list[ReplayStep], End]]:
    """Whole episodes."""
    out = []
    for number in sorted({record.episode for record in records}):
        *steps, end = [record for record in records if record.episode == number]
        assert isinstance(end, End)
        out.append(([step for step in steps if isinstance(step, ReplayStep)], end))
    return out


def holds(observation: Any, interface: Interface) -> bool:
    names = interface.observation["proprio"].names
    seen = dict(zip(names, observation["proprio"].tolist(), strict=True))
    return seen["tcp_z"] > np.float32(RAISED) and GRASP[0] < seen["gripper_width"] < GRASP[1]


@pytest.mark.long
@pytest.mark.parametrize(("done_hz", "frames"), [(20.0, 3), (10.0, 2)])
def test_a_lifted_cube_ends_the_episode_at_the_verdict_that_its_frames_say(
    tmp_path: Path, done_hz: float, frames: int
) -> None:
    """In the embedded simulation; by the same seed the world alone goes on for longer."""
    env = make_env("lift", 1, threads=1)
    interface = env.interface
    env.close()
    whole = split(lift(tmp_path / "world", done_hz=0, frames=1))
    ended = split(lift(tmp_path / "model", done_hz=done_hz, frames=frames))
    assert len(whole) == len(ended) == 2
    every = round(20 / done_hz)
    for (world, _), (steps, end) in zip(whole, ended, strict=True):
        seen = [*(step.observation for step in world[1:]), _.observation]  # what each step led to
        verdicts = [t for t in range(len(seen)) if (t + 1) % every == 0]
        yes = [holds(seen[t], interface) for t in verdicts]
        at = next(i for i in range(frames - 1, len(yes)) if all(yes[i - frames + 1 : i + 1]))
        assert len(steps) == end.length == verdicts[at] + 1 < len(world)
        assert (end.terminated, end.truncated, end.success) == (True, False, True)
        assert [step.reward for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
        np.testing.assert_array_equal(end.observation["proprio"], seen[len(steps) - 1]["proprio"])
        np.testing.assert_array_equal(steps[-1].action, world[len(steps) - 1].action)


def test_the_example_s_reward_is_done_where_the_world_is_solved_and_not_before(tmp_path: Path) -> None:
    env = make_env("lift", 1, threads=1)
    model = Lifted(env.interface)
    env.close()
    for steps, end in split(lift(tmp_path, done_hz=0, frames=1)):
        assert end.success
        seen = [*(step.observation["proprio"] for step in steps), end.observation["proprio"]]
        window = Window({"proprio": np.stack(seen)}, np.stack([step.action for step in steps]))
        (score,) = model.score([window], [""])
        assert score.done[-1] and not score.done[: len(steps) // 2].any()


class Beyond:
    """`x ≥ 0.3` on the line, `slow_s` late."""

    def __init__(self, slow_s: float) -> None:
        self.slow_s, self.seen = slow_s, []

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        time.sleep(self.slow_s)
        self.seen += [window.observation["proprio"][:, 1].tolist() for window in windows]
        return [self.score_one(window) for window in windows]

    def score_one(self, window: Window) -> Score:
        x = window.observation["proprio"][1:, 0]
        ones = np.ones(len(x), np.float32)
        return Score(np.clip(x, 0, 1), -ones, x >= 0.3, ones)


@pytest.mark.long
def test_a_slow_model_delays_no_control_step(tmp_path: Path) -> None:
    """Each verdict takes seven control steps. The learner, which has the model too, counts to the second done step."""
    right = SimpleNamespace(begin=lambda _: None, steer=lambda: None)
    right.command = lambda observation: (np.array([True]), np.full((1, 1), 0.3, np.float32))
    lesson = replace(make_lesson("realtime", warmup=10**6), done_hz=20.0, done_frames=2)
    room = Classroom(tmp_path, lesson, env_steps=10**6, model=Beyond(0.0))
    env, model = LineWorld(limit=40), Beyond(0.35)
    with closing(OnlineDone([model], 20.0, 20.0, frames=2)) as done:
        played = play(tmp_path / "outbox", room.port, env=env, helper=lambda _: right, done=done,
                      stop=lambda: len(room.learner.experience.outcomes) >= 2)  # fmt: skip
    room.stop()
    for steps, end in split([r for r in played.records if r.episode < 2]):
        xs = np.array([*(step.observation["proprio"][0] for step in steps[1:]), end.observation["proprio"][0]])
        second = int(np.argmax(xs >= 0.3)) + 2
        assert second < len(steps) < 40, "two verdicts later, but before the world's clock"
        assert (end.terminated, end.success, steps[-1].reward) == (True, True, 1.0) and float(xs[-1]) < 1.0 + 1.0
        outcome = room.learner.experience.outcomes[steps[0].episode]
        assert (outcome.steps, outcome.success) == (second, True)
        assert outcome.reward == pytest.approx(1.0 - 0.01 * np.clip(xs[: second - 1], 0, 1).sum(), abs=1e-5)
    assert all(seen[0] == 0 for seen in model.seen), "from the episode's first frame"
    assert max(np.diff([seen[-1] for seen in model.seen])) >= 5, "it skips what it has missed"
    period = played.link.measure()
    assert period.count > 20 and period.p50 == pytest.approx(50, abs=5) and period.p99 < 120, "of ideally 50 ms"


def test_a_learner_scores_by_its_check_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never(Beyond):
        def score_one(self, window: Window) -> Score:
            return replace(super().score_one(window), done=np.zeros(len(window), bool))

    models = SimpleNamespace(Model=lambda _: Beyond(0.0), Check=lambda _: Never(0.0), Twice=lambda _: Beyond(0.0))
    monkeypatch.setitem(sys.modules, "mine", models)  # type: ignore[arg-type]
    window = Window({"proprio": np.full((4, 2), 0.5, np.float32)}, np.zeros((3, 1), np.float32))
    found, names = [], set()
    for check in ("", "mine:Twice", "mine:Check"):
        lesson = replace(make_lesson(reward="mine:Model"), done_check=check)
        model, name, asks = reward_model(lesson, LineWorld().interface, "cpu")
        assert model is not None and not asks
        names.add(name)
        found += [score.done.all() for score in model.score([window], [""])]
    assert found == [True, True, False] and len(names) == 3, "scores of another check are others"


def test_a_person_s_label_comes_before_the_model_s(tmp_path: Path) -> None:
    class Always(Beyond):
        def score_one(self, window: Window) -> Score:
            score = super().score_one(window)
            return Score(score.progress, score.reward, np.ones(len(window), bool), score.confidence)

    page = SimpleNamespace(show=lambda status: asks.append(status.episode == 1))
    asks: list[bool] = []
    page.poll = lambda: ["failure"] if asks[-1] else []
    room = Classroom(tmp_path, make_lesson(), env_steps=3)
    done = OnlineDone([Always(0.0)], 20.0, 20.0, frames=1, waits=True)
    played = play(tmp_path / "outbox", room.port, helper=None, console=page, done=done)
    room.close()
    ends = [(end.length, end.terminated, end.success) for _, end in split(played.records)]
    assert ends == [(1, True, True), (1, True, False), (1, True, True)]


def test_an_actor_opens_no_model_because_a_learner_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robolearn.cli.hil.commands import HilActor

    asked: dict[str, Any] = {"policy": tmp_path, "out": tmp_path}
    config = make_lesson("lockstep", reward="os:_exit")
    interface = LineWorld().interface
    assert config.ends_online and HilActor(**asked).make_done(config, interface) is None
    assert any("--reward os:_exit" in message for message in caplog.messages)
    assert not make_lesson(reward="key").ends_online
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(Model=lambda interface: Beyond(0.0)))  # type: ignore[arg-type]
    found = HilActor(**asked, reward="mine:Model").make_done(config, interface)
    assert found is not None
    found.close()
    with pytest.raises(BadInput, match="--done-check: got mine:Model, expected none"):
        HilActor(**asked, reward="mine:Model", done_check="mine:Model").make_done(config, interface)
    checked = replace(config, done_check="mine:Model")
    with pytest.raises(BadInput, match="--done-check: missing; expected the learner's, mine:Model"):
        HilActor(**asked, reward="mine:Model").make_done(checked, interface)
    with pytest.raises(BadInput, match="--reward, --done-check"):
        HilActor(**asked, reward="mine:Model", done_check="task").make_done(checked, interface)
