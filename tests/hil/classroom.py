"""One small world, one small policy, and learners and actors in one process, joined by real gRPC over loopback."""

from __future__ import annotations

import copy
import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, Interface
from robolearn.data.replay import RecordSchema, ScoreLog
from robolearn.hil.actor import ActorLoop
from robolearn.hil.agent import DoubleBufferedPolicy
from robolearn.hil.learner import Learner
from robolearn.hil.learner_service import LearnerState, learner_methods
from robolearn.hil.link import Link
from robolearn.hil.outbox import Outbox
from robolearn.hil.scoring import EpisodeScoring
from robolearn.hil.settings import Budget, LearnerConfig, LearnerOptions
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.hil.wire.messages import interface_hash
from robolearn.io.wire.client import Client
from robolearn.io.wire.security import Address
from robolearn.io.wire.server import GrpcServer
from robolearn.rl.off_policy_settings import ProposalsConfig, RlpdConfig
from robolearn.runs import Run

INTERFACE = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 20.0)
SCHEMA = RecordSchema(INTERFACE)
TOKEN = "a token for tests only"
SMALL: dict[str, Any] = {"width": 16, "depth": 1, "critics": 2, "subset": 1, "batch": 16, "warmup": 10, "utd": 0.5}
WAIT_S = 60.0


class LineWorld:
    """x moves by 0.2 a; beyond 1 the task is solved and ends, after `limit` steps the clock ends it.

    The observation is (x, steps). `final` keeps what was seen last of each episode, `executed` all actions.
    """

    def __init__(self, limit: int = 12) -> None:
        self.num_envs, self.max_episode_steps, self.steps_together = 1, limit, False
        self.reports_success, self.continuing = True, False
        self.task, self.prompt, self.interface = "line", "go right", INTERFACE
        self.executed: list[list[float]] = []
        self.final: list[np.ndarray] = []
        self.slow_s = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        assert seed is not None
        self.x, self.count = np.random.default_rng(seed).uniform(-0.5, 0.0), 0
        self.executed.append([])
        return self._seen(), {}

    def step(self, actions: np.ndarray, active: Any = None) -> tuple:
        time.sleep(self.slow_s)
        self.x += 0.2 * float(actions[0, 0])
        self.count += 1
        self.executed[-1].append(float(actions[0, 0]))
        solved = self.x >= 1.0
        over = self.count >= self.max_episode_steps and not solved
        infos: dict[str, Any] = {"success": np.array([solved])}
        if solved or over:
            infos["final_obs"] = self._seen()
            self.final.append(infos["final_obs"]["proprio"][0])
            self.x, self.count = 99.0, 0  # a reset within the step: nobody may see it in a record
        return self._seen(), np.array([solved], np.float32), np.array([solved]), np.array([over]), infos

    def _seen(self) -> dict[str, np.ndarray]:
        return {"proprio": np.array([[self.x, self.count]], np.float32)}

    def snapshot(self) -> None:
        return None

    def restore(self, snapshot: Any) -> Any:
        raise NotImplementedError

    def frame(self, world: int = 0) -> None:
        return None

    def close(self) -> None:
        pass


class Helper:
    """Takes over at step 4 of every second episode, for three steps, and drives to the right; or all the time."""

    def __init__(self, seed: int, *, every: int = 2) -> None:
        self.helps, self.all = seed % every == 0, False

    def begin(self, worlds: np.ndarray) -> None:
        self.count, self.all = -1, False

    def steer(self) -> None:
        self.all = True

    def command(self, observation: Any) -> tuple[np.ndarray, np.ndarray]:
        self.count += 1
        steers = self.all or (self.helps and 4 <= self.count < 7)
        return np.array([steers]), np.array([[1.0 if steers else np.nan]], np.float32)


@functools.cache
def _base() -> ChunkPolicy:
    torch.manual_seed(0)
    config = FlowConfig(horizon=3, execute=3, network=NetworkConfig(width=8, depth=1))
    return ChunkPolicy(config.build(INTERFACE), Normalizer(INTERFACE), INTERFACE)


def make_base() -> ChunkPolicy:
    """Always the same: chunks of three."""
    return copy.deepcopy(_base())


def make_lesson(
    pace: str = "lockstep", algo: str = "proposals", reward: str = "task", **settings: Any
) -> LearnerConfig:
    kind: Any = ProposalsConfig if algo == "proposals" else RlpdConfig
    own = {"proposals": 2, "backup_proposals": 1} if algo == "proposals" else {}
    return LearnerConfig(algo=algo, settings=kind(**{**SMALL, **own, **settings}), pace=pace, seed=3, reward=reward)  # type: ignore[arg-type]


FIRST: dict[str, Any] = {"done_hz": INTERFACE.control_hz, "done_frames": 1}  # the first sure frame is the end


class Classroom:
    """A learner in a thread, behind its door. It can be stopped, and started again at the same address."""

    def __init__(
        self, folder: Path, config: LearnerConfig, *, env_steps: int = 150, port: int = 0,
        model: Any = None, needs_words: bool = False, words: str = "", **settings: Any,
    ) -> None:  # fmt: skip
        resume = (folder / "run").exists()
        self.run = Run.create(folder / "run", {"test": True}, resume=resume)
        self.receiver = TransitionReceiver(folder / "log", SCHEMA, single=config.pace == "lockstep")
        self.shown, self.config = LearnerState(), config
        given = LearnerOptions(**{"checkpoint_s": 1e9, "publish_every": 5, **settings})
        self.scoring = None
        if model is not None:
            scores = ScoreLog(folder / "log")
            self.scoring = EpisodeScoring(model, "a model", scores, 60.0, arrived=self.receiver.wake)
        self.learner = Learner(
            self.run,
            make_base(),
            config,
            Budget(env_steps=env_steps),
            self.receiver,
            self.shown,
            (),
            given,
            self.scoring,
        )
        answers = learner_methods(
            self.receiver, self.shown, run="a run", config=config.to_text(), interface=interface_hash(INTERFACE),
            policy="a policy", record_limit=SCHEMA.limit, needs_words=needs_words, words=words,
        )  # fmt: skip
        self.door = GrpcServer(Address("127.0.0.1", port), answers, TOKEN)
        self.port = self.door.address.port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._learn, daemon=True)
        self.error: BaseException | None = None
        self._thread.start()

    def _learn(self) -> None:
        torch.set_num_threads(1)
        try:
            self.learner.learn(self._stop.is_set, lambda *_: None)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """As SIGTERM does: a last checkpoint is written."""
        self._stop.set()
        self.close()

    def close(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self.door.close(0.1)
        if self.scoring is not None:
            self.scoring.close()
        self.receiver.close()
        self.run.close()
        if self.error is not None:
            raise self.error

    def state(self) -> dict[str, torch.Tensor]:
        """All that the next update depends on."""
        return self.learner.algorithm.state()[0] | {"draws": self.learner.draws.get_state()}


def client_of(port: int) -> Callable[[int], Client]:
    return lambda limit: Client(Address("127.0.0.1", port), TOKEN, None, limit)


@contextmanager
def desk(folder: Path, port: int, name: str = "actor", policy: str = "a policy") -> Iterator[SimpleNamespace]:
    """An actor's outbox and link, not yet opened."""
    outbox = Outbox(folder, name, SCHEMA)
    link = Link(client_of(port), outbox, name, interface_hash(INTERFACE), policy)
    try:
        yield SimpleNamespace(outbox=outbox, link=link)
    finally:
        link.close()
        outbox.close()


def play(folder: Path, port: int, *, env: LineWorld | None = None, name: str = "actor", helper: Any = Helper,
         stop: Callable[[], bool] = lambda: False, console: Any = None, done: Any = None,
) -> SimpleNamespace:  # fmt: skip
    """Be an actor until the learner says that it is over; what was played."""
    env = LineWorld() if env is None else env
    until = time.monotonic() + WAIT_S

    def ends() -> bool:
        assert time.monotonic() < until, "the actor does not end"
        return stop()

    with desk(folder, port, name) as ours:
        config = ours.link.open(ends)
        buffered = DoubleBufferedPolicy(lambda: config.settings.build(make_base(), seed=config.seed))
        ours.link.start(buffered)
        actor = ActorLoop(env, buffered, ours.link, ours.outbox, config, name, ("proprio",), helper, console, done=done)
        played = actor.run(ends)
        return SimpleNamespace(
            played=played,
            records=list(ours.outbox.read()),
            link=ours.link,
            buffered=buffered,
            env=env,
            outbox=ours.outbox,
        )
