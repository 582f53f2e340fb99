"""The learner without a wire: the ratio, shares of a batch, crashes among records of several actors, the curve."""

from __future__ import annotations

import math
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.data.replay import End, PlayedEpisode, Record, ReplayStep
from robolearn.hil import transition_receiver as intakes
from robolearn.hil.actor import Pacer
from robolearn.hil.experience import EpisodeOutcome, RecordedExperience
from robolearn.hil.learner import Learner, result_of, summary
from robolearn.hil.learner_service import LearnerState
from robolearn.hil.settings import Budget, LearnerConfig, LearnerOptions, episode_seed
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.io.wire.server import CallRefused
from robolearn.runs import Run, read_metrics

sys.path.insert(0, str(Path(__file__).parent))
from classroom import SCHEMA, make_base, make_lesson


def episode(number: int, length: int, *, helped: tuple[int, ...] = (), success: bool = False) -> list[Record]:
    """Its observation is (number, t), its reward 1 at a success."""
    out: list[Record] = [
        ReplayStep(number, t, {"proprio": np.array([number, t], np.float32)}, np.array([t / 100], np.float32),
             float(success and t == length - 1), t in helped)
        for t in range(length)
    ]  # fmt: skip
    last = {"proprio": np.array([number, length], np.float32)}
    return [*out, End(number, length, last, success, not success, success)]


def demonstration(length: int = 20) -> PlayedEpisode:
    seen = {"proprio": np.full((length, 2), -5, np.float32)}
    return PlayedEpisode(seen, np.zeros((length, 1), np.float32), np.zeros(length, np.float32), np.ones(length, bool),
                         False, True)  # fmt: skip


class Bench:
    """A learner that is fed by hand."""

    def __init__(
        self, folder: Path, config: LearnerConfig, *, demos: Any = (), awaited: int = 0, scoring: Any = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.run = Run.create(folder / "run", {"test": True}, resume=(folder / "run").exists())
        self.receiver = TransitionReceiver(folder / "log", SCHEMA, single=False)
        self.state = LearnerState()
        self.learner = Learner(self.run, make_base(), config, Budget(env_steps=10**6), self.receiver, self.state, demos,
                               LearnerOptions(**settings), scoring, awaited)  # fmt: skip
        self.logs: dict[str, Any] = {}

    def send(self, actor: str, records: list[Record]) -> None:
        if actor not in self.logs:
            self.logs[actor] = self.receiver.connect(actor, 0)
        log = self.logs[actor]
        self.receiver.append(log, log.session, log.count, [SCHEMA.encode(record) for record in records])

    def work(self) -> None:
        """All there is to do."""
        while self.learner.step():
            pass

    def close(self) -> None:
        self.receiver.close()
        self.run.close()


@pytest.mark.long
@pytest.mark.parametrize("pace", ["lockstep", "realtime"])
@pytest.mark.parametrize("utd", [0.3, 2.0])
def test_the_ratio_is_never_exceeded_and_always_reached(tmp_path: Path, pace: str, utd: float) -> None:
    bench, made = Bench(tmp_path, make_lesson(pace, utd=utd)), []
    update = bench.learner.algorithm.update

    def spy(batch: Any) -> Any:
        made.append(bench.learner.experience.env_steps)
        assert len(made) <= utd * (made[-1] - 10) + 1e-9
        return update(batch)

    bench.learner.algorithm.update = spy  # type: ignore[method-assign]
    for number, length in enumerate((7, 9, 12, 4)):
        bench.send("a", episode(number, length))
        bench.work()
        steps = bench.learner.experience.env_steps
        assert len(made) == math.floor(utd * max(steps - 10, 0) + 1e-9)
    bench.close()


def test_records_come_before_updates_in_real_time_and_after_them_in_lockstep(tmp_path: Path) -> None:
    for pace, expected in (("lockstep", [20, 40]), ("realtime", [40, 40])):
        bench, at = Bench(tmp_path / pace, make_lesson(pace, utd=1.0)), []
        update = bench.learner.algorithm.update

        def spy(batch: Any, update: Any = update, at: list[int] = at, bench: Bench = bench) -> Any:
            at.append(bench.learner.experience.env_steps)
            return update(batch)

        bench.learner.algorithm.update = spy  # type: ignore[method-assign]
        bench.send("a", episode(0, 20) + episode(1, 20))
        bench.work()
        assert len(at) == 30 and [at[0], at[-1]] == expected
        bench.close()


def test_weights_are_published_every_so_many_updates(tmp_path: Path) -> None:
    bench, versions = Bench(tmp_path, make_lesson("realtime", utd=1.0), publish_every=8), []
    bench.learner.publish()
    publish = bench.state.publish
    bench.state.publish = lambda w: versions.append(w.version) or publish(w)  # type: ignore[method-assign]
    bench.send("a", episode(0, 30))
    bench.work()
    assert versions == [8, 16, 20]
    bench.close()


def test_half_of_a_batch_is_shown_and_interventions_count_as_shown(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_lesson("realtime", demo_share=0.25), demos=[demonstration()])
    experience, draws = bench.learner.experience, torch.Generator().manual_seed(0)
    batch = experience.sample(draws)
    assert bool((batch.observation["proprio"] == -5).all())  # nothing else is there yet
    for record in episode(0, 30, helped=(10, 11, 12, 13, 14)):
        for closed in experience.take("a", record):
            experience.learn(closed)
    batch = experience.sample(draws)
    first = batch.observation["proprio"][:, 0]
    assert len(batch) == 16 and bool((first[:12] == 0).all()) and bool(batch.intervention[12:].all())
    shown = torch.cat([experience.sample(draws).observation["proprio"][12:, 0] for _ in range(30)])
    assert {-5, 0} == set(shown.int().tolist())
    assert len(experience.demonstrations) == 17 + 3  # chunks of three within the five steps
    bench.close()


def test_buffers_are_rebuilt_bit_for_bit_from_logs_of_two_actors_and_a_crash(tmp_path: Path) -> None:
    config = make_lesson("realtime", utd=0.2)
    bench = Bench(tmp_path, config, demos=[demonstration()])
    a, b = episode(0, 9, helped=(3, 4, 5, 6)), episode(0, 12, success=True)
    bench.send("a", a[:5])
    bench.send("b", b)
    bench.send("a", a[5:])
    bench.send("b", episode(1, 8)[:6])  # then it crashes
    bench.send("a", episode(1, 11, helped=(0, 1, 2)))
    bench.send("b", episode(2, 10))
    bench.send("a", episode(2, 7)[:4])  # an episode that is still running
    bench.work()
    bench.learner.save()
    bench.send("a", episode(2, 7)[4:])  # not in the checkpoint
    outcomes = [(o.steps, o.interventions, o.takeovers, o.cut) for o in bench.learner.experience.outcomes]
    assert outcomes == [(12, 0, 0, False), (9, 4, 1, False), (11, 3, 1, False), (5, 0, 0, True), (10, 0, 0, False)]
    before = everything(bench.learner.experience), bench.learner.algorithm.state()[0], bench.learner.draws.get_state()
    bench.close()

    other = Bench(tmp_path, config, demos=[demonstration()])
    after = everything(other.learner.experience), other.learner.algorithm.state()[0], other.learner.draws.get_state()
    for one, two in zip(before[:2], after[:2], strict=True):
        assert one.keys() == two.keys()
        for key, value in one.items():
            assert torch.equal(value, two[key]), key
    assert torch.equal(before[2], after[2])
    assert other.learner.experience.order == bench.learner.experience.order
    other.work()  # what the log has beyond the checkpoint, the running episode's first steps included
    assert other.learner.experience.outcomes[-1].steps == 7 and other.learner.experience.taken == {"a": 30, "b": 30}
    assert other.learner.updates == math.floor(0.2 * (other.learner.experience.env_steps - 10))
    other.close()


def everything(experience: RecordedExperience) -> dict[str, torch.Tensor]:
    """All windows of both buffers, the base's proposals included."""
    found = {}
    for name, buffer in (("online", experience.online), ("shown", experience.demonstrations)):
        batch = buffer.gather(torch.arange(len(buffer)), 0.9, torch.Generator().manual_seed(0))
        found |= {f"{name}/{key}": value for key, value in vars(batch).items() if isinstance(value, torch.Tensor)}
        found[f"{name}/seen"], found[f"{name}/next"] = batch.observation["proprio"], batch.next_observation["proprio"]
    return found


def test_a_log_that_lost_what_the_checkpoint_has_seen_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_lesson())
    bench.send("a", episode(0, 12))
    bench.work()
    bench.learner.save()
    bench.close()
    (tmp_path / "log" / "a.transitions").write_bytes(b"")
    with pytest.raises(BadInput, match="at least 13"):
        Bench(tmp_path, make_lesson())


def test_the_queue_is_bounded_and_actors_keep_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "QUEUED_BYTES", 4000)
    bench, sent = Bench(tmp_path, make_lesson("realtime")), episode(0, 30)
    with pytest.raises(CallRefused) as full:
        bench.send("a", sent)
    assert full.value.status is grpc.StatusCode.UNAVAILABLE
    count = bench.logs["a"].count
    assert 0 < count < 31
    bench.work()
    while count < 31:
        try:
            bench.send("a", sent[count:])
        except CallRefused:
            bench.work()
        count = bench.logs["a"].count
    bench.work()
    assert bench.learner.experience.env_steps == 30
    bench.close()


def test_the_curve_counts_what_a_policy_did_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_lesson("realtime"), success_window=3)
    for number, (helped, success) in enumerate(
        [((), True), ((1, 2), True), ((), False), ((), True), ((3,), True), ((), True)]
    ):
        bench.send("a", episode(number, 10, helped=helped, success=success))
    bench.work()
    result = result_of(bench.learner)
    assert result["success"]["rate"] == pytest.approx(2 / 3) and result["success"]["episodes"] == 3
    assert result["intervention_rate"] == pytest.approx(1 / 30)
    assert (result["env_steps"], result["episodes"], result["robot_minutes"]) == (60, 6, pytest.approx(0.05))
    assert result["utd"] == pytest.approx(result["updates"] / 60)
    rows = list(read_metrics(tmp_path / "run"))
    assert [row["success"] for row in rows] == [True, True, False, True, True, True]
    assert [row["interventions"] for row in rows] == [0, 2, 0, 0, 1, 0]
    bench.close()


def test_a_crash_is_neither_a_success_nor_a_failure() -> None:
    whole, cut = EpisodeOutcome(10, 0, 0, True, 1.0, False), EpisodeOutcome(10, 0, 0, False, 0.0, True)
    free, rate = summary([whole, cut, cut], 2)
    assert free == [whole] and rate == 0.0
    assert summary([], 5)[0] == [] and math.isnan(summary([], 5)[1])


def test_seeds_of_episodes_differ_by_everything() -> None:
    seeds = {episode_seed(s, a, e, u) for s in range(3) for a in ("a", "b", "") for e in range(5) for u in range(4)}
    assert len(seeds) == 3 * 3 * 5 * 4 and all(0 <= seed < 2**32 for seed in seeds)
    assert episode_seed(1, "a", 2, 3) == episode_seed(1, "a", 2, 3)


def test_steps_keep_their_rate_and_are_not_hurried_after_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("robolearn.hil.actor.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("robolearn.hil.actor.time.sleep", lambda s: now.__setitem__(0, now[0] + s))
    pacer, at = Pacer(20.0), []
    pacer.begin()
    for work_s in (0.01, 0.04, 0.2, 0.01, 0.01, 0.0):
        pacer.tick()
        at.append(round(now[0] - 100.0, 6))
        now[0] += work_s
    # A step that took 0.2 s is followed at once, and then the rate is as before: never two steps within a period.
    assert at == [0.0, 0.05, 0.1, 0.3, 0.35, 0.4]
    assert pacer.measured().count == 5 and pacer.measured().p50 == pytest.approx(50.0)
    pacer.begin()
    pacer.tick()
    assert pacer.measured().count == 5  # between two episodes nothing is measured
    assert Pacer(None).measured().count == 0


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_dead_actor_s_episode_is_cut_after_a_while(tmp_path: Path, comes_back: bool) -> None:
    """What it did is learned from without an outcome; its rest, should it come after all, is passed over."""
    config = make_lesson("realtime", utd=0.2)
    bench = Bench(tmp_path, config, demos=[demonstration()], cut_after_s=60.0)
    told = episode(0, 12, success=True)
    bench.send("a", told[:8])
    bench.send("b", episode(0, 6)[:3])
    bench.work()
    for actor in ("a", "b"):
        bench.state.note_heartbeat(actor)
    bench.learner.check_actors()
    assert not bench.learner.experience.outcomes, "it was heard a moment ago"
    bench.state.last_heartbeat["a"] -= 61.0  # silent for so long
    bench.learner.check_actors()
    bench.learner.check_actors()
    (outcome,) = bench.learner.experience.outcomes
    assert outcome.cut and outcome.steps == 7 and not outcome.success and bench.learner.experience.online.steps == 7
    assert not bench.learner.experience.online.windows["ends"].any()
    bench.learner.save()
    if comes_back:
        bench.send("a", told[8:])
    bench.send("a", episode(1, 9))
    bench.work()
    assert [(o.steps, o.cut) for o in bench.learner.experience.outcomes] == [(7, True), (9, False)]
    assert bench.learner.experience.taken["a"] == (23 if comes_back else 18)
    bench.learner.save()
    before = everything(bench.learner.experience)
    bench.close()
    other = Bench(tmp_path, config, demos=[demonstration()], cut_after_s=60.0)
    for key, value in everything(other.learner.experience).items():
        assert torch.equal(before[key], value), key
    other.work()
    other.learner.check_actors()
    assert other.learner.experience.running == ["b"]
    other.learner._began -= 61.0  # b was never heard of by this learner
    other.learner.check_actors()
    assert other.learner.experience.outcomes[-1].cut and not other.learner.experience.running
    other.close()


@pytest.mark.long
@pytest.mark.parametrize("awaited", [0, 1])
def test_a_run_that_is_over_when_it_begins_waits_for_who_is_to_hear_of_it(tmp_path: Path, awaited: int) -> None:
    """An actor that is started beside it would look for a learner for ever."""
    bench = Bench(tmp_path, make_lesson(), awaited=awaited)
    bench.send("a", episode(0, 12))
    bench.work()
    bench.learner.budget = Budget(env_steps=10)
    learning = threading.Thread(target=lambda: bench.learner.learn(lambda: False, lambda *_: None))
    learning.start()
    learning.join(2.0)
    assert learning.is_alive() == bool(awaited)
    bench.state.note_heartbeat("a")
    learning.join(2.0)
    assert not learning.is_alive() and bench.state.finished
    bench.close()


def test_in_lockstep_an_actor_is_waited_for_however_long_it_takes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_lesson(), cut_after_s=60.0)
    bench.send("a", episode(0, 12)[:8])
    bench.work()
    bench.state.note_heartbeat("a")
    bench.state.last_heartbeat["a"] -= 61.0
    bench.learner.check_actors()
    assert not bench.learner.experience.outcomes and bench.learner.experience.running == ["a"]
    bench.close()
