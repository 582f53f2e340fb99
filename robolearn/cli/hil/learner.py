"""``robolearn hil learner``: the half that learns."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robolearn.cli.choices import OffPolicyAlgorithm
from robolearn.cli.hil.playing import pace_of
from robolearn.cli.hil.shown import learner_lines, print_lines
from robolearn.core import BadInput, check_compatible
from robolearn.hil.settings import Budget, CurriculumConfig, LearnerConfig, LearnerOptions, Pace
from robolearn.rewards.choice import TASK, check_reward
from robolearn.rl.algorithms import OffPolicyConfig, algorithm
from robolearn.rl.off_policy_settings import ProposalsConfig
from robolearn.runs.command import Command, at_least, check_seed, peek

log = logging.getLogger(__name__)

ENV_STEPS = 24_000  # twenty minutes at 20 Hz
LOGS, SPOOL = "logs", "spool"
BESIDE = (LOGS, SPOOL)  # in the run folder, by `robolearn hil run`


@dataclass(frozen=True, kw_only=True)
class Teaching(Command):
    """What the learner and both halves together are told."""

    policy: Path
    """A run folder or a checkpoint folder: the policy to begin with; its weights stay as they are."""
    demos: Path | None = None
    """A data set of demonstrations."""
    out: Path
    """The run folder."""
    reward: str = TASK
    """task: the world's own, and what a person says; key: the person's success key alone; <module>:<Class>: a
    RewardModel of yours, which scores each episode before it is learned from."""
    cut_after_s: float = 60.0
    """In real time: the episode of an actor that is silent for so long is learned from without its outcome."""
    algo: OffPolicyAlgorithm = "proposals"
    """The algorithm."""
    env_steps: int = ENV_STEPS
    """Budget of control steps; the episode in which it is reached is the last."""
    episodes: int = 0
    """Budget of episodes; 0 for as many as the steps allow."""
    pace: Pace = "lockstep"
    """lockstep: the actor waits for the learner at each episode's end, and the outcome depends on the seed alone.
    realtime: the actor keeps its rate, and never waits."""
    seed: int = 0
    """Of starts, noise and everything else."""
    device: str = "auto"
    """Where the learner computes: auto, cpu, cuda or cuda:<i>."""
    success_window: int = 100
    """How many of the last intervention-free episodes the success is of."""
    publish_every: int = 50
    """Updates between two versions of the weights, in real time."""
    checkpoint_s: float = 30.0
    """Seconds between two checkpoints."""
    resume: bool = False
    """Go on with the run in --out, exactly."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    settings: OffPolicyConfig = field(default_factory=ProposalsConfig)

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        return {"settings": algorithm(peek(args, "--algo", "proposals"), OffPolicyConfig)()} | pace_of(args)

    def check(self) -> None:
        """Raise `BadInput` for flags that make no sense."""
        at_least(1, env_steps=self.env_steps, success_window=self.success_window, publish_every=self.publish_every)
        at_least(0, episodes=self.episodes)
        check_seed(self.seed)
        check_reward(self.reward)
        if not self.cut_after_s > 0:
            raise BadInput("--cut-after-s", got=self.cut_after_s, expected="more than 0")
        if not self.checkpoint_s > 0:
            raise BadInput("--checkpoint-s", got=self.checkpoint_s, expected="more than 0")


@dataclass(frozen=True, kw_only=True)
class HilLearner(Teaching):
    """Learn from what actors send. Can be killed at any moment and resumed exactly; asks nothing."""

    listen: str = "127.0.0.1:7350"
    """HOST:PORT; port 0 takes a free one. Beyond loopback --certs is required."""
    token: str = ""
    """What actors must bring; by default that of --certs, ROBOLEARN_HIL_TOKEN, or a new one in <out>/token."""
    certs: Path | None = None
    """A folder of `robolearn hil certs`."""
    go_on: bool = False
    """Go on with the run in --out if there is one: --resume for programs that start this one again."""
    nice: int = 0
    """How much of the processor to leave to others, 0 to 19."""

    def run(self) -> dict[str, Any]:
        import torch

        from policies.storage.checkpoint import load_chunk_policy
        from policies.storage.loading import needed_by
        from robolearn.cli.hil.stopping import stopping
        from robolearn.core.device import resolve_device
        from robolearn.data import Dataset
        from robolearn.data.replay import PlayedEpisode, RecordSchema
        from robolearn.hil.learner import Learner, result_of
        from robolearn.hil.learner_service import LearnerState, learner_methods
        from robolearn.hil.transition_receiver import TransitionReceiver
        from robolearn.hil.wire.messages import interface_hash
        from robolearn.hil.wire.security import Address, Certificates, check_encryption, find_token
        from robolearn.hil.wire.server import GrpcServer, Refusals, handshake_refusals
        from robolearn.io.atomic import write_text
        from robolearn.io.json_files import plain
        from robolearn.rewards.choice import make_reward
        from robolearn.rewards.scoring import scored
        from robolearn.runs import Progress, Run
        from robolearn.runs.run import CONFIG

        self.check()
        certificates = Certificates(self.certs) if self.certs else None
        address, token = Address.parse(self.listen, "--listen"), find_token(self.token, certificates)
        check_encryption(address, certificates)
        os.nice(self.nice)
        torch.set_num_threads(1)
        base = load_chunk_policy(self.policy, resolve_device(self.device))
        config = LearnerConfig(
            algo=self.algo, settings=self.settings, pace=self.pace, seed=self.seed, curriculum=self.curriculum,
            reward=self.reward,
        )  # fmt: skip
        model = make_reward(self.reward, base.interface)
        digest = policy_hash(base)
        demos = Dataset.open(self.demos) if self.demos else None
        if demos is not None:
            check_compatible(needed_by(self.policy), demos.interface, what=f"--demos {self.demos}")
        stored = {
            "command": "hil",
            "policy": str(self.policy),
            "sha256": digest,
            "interface": base.interface.to_json(),
            "demos": None if demos is None else {"path": str(self.demos), "frames": demos.frames},
            "algo": self.algo,
            "settings": plain(self.settings),
            "curriculum": plain(self.curriculum),
            "pace": self.pace,
            "reward": self.reward,
            "seed": self.seed,
            "env_steps": self.env_steps,
            "episodes": self.episodes,
        }
        may_differ = ("policy", "demos.path", "env_steps", "episodes")
        resume = self.resume or (self.go_on and (self.out / CONFIG).exists())
        making = Run.create(self.out, stored, resume=resume, may_differ=may_differ, beside=BESIDE)
        with making as run, stopping() as stop:
            schema = RecordSchema(base.interface)
            receiver, state = (
                TransitionReceiver(self.out / "log", schema, single=self.pace == "lockstep"),
                LearnerState(),
            )
            shown = () if demos is None else (demos.episode(i) for i in range(demos.episodes))
            demonstrations = (PlayedEpisode.of_demonstration(episode) for episode in shown)
            words = demos.episode(0).task if demos is not None and demos.episodes else ""

            def score(episode: PlayedEpisode) -> PlayedEpisode:
                return episode if model is None else scored(episode, model, words)

            name = self.out / "run"
            if not name.exists():
                write_text(name, secrets.token_hex(16) + "\n")
            if token is None:
                token = own_token(self.out / "token")
            learner = Learner(
                run, base, config, Budget(env_steps=self.env_steps, episodes=self.episodes), receiver, state,
                demonstrations,
                LearnerOptions(publish_every=self.publish_every, checkpoint_s=self.checkpoint_s,
                                success_window=self.success_window, cut_after_s=self.cut_after_s,
                                awaited=int(self.go_on)),
                score=score,
            )  # fmt: skip
            answers = learner_methods(
                receiver, state, run=name.read_text().strip(), config=config.to_text(),
                interface=interface_hash(base.interface), policy=digest, record_limit=schema.limit,
            )  # fmt: skip
            refusals = Refusals()
            hearing = handshake_refusals(refusals) if certificates else contextlib.nullcontext()
            door = GrpcServer(address, answers, token, certificates, refusals)
            try:
                log.info("the learner listens at %s", door.address)
                keys = ("success", "intervention_rate", "updates")
                bar = Progress("learning", total=self.env_steps, unit="control steps", show=keys, quiet=self.json)
                with hearing, bar as progress:
                    done = learner.learn(stop, progress)
            finally:
                door.close()
                receiver.close()
            if not done:
                raise KeyboardInterrupt
            result = result_of(learner)
            run.finish(result)
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        print_lines(learner_lines(self, result), console)


def policy_hash(policy: Any) -> str:
    """Of the weights of a policy, normalisation included."""
    from robolearn.io.hashes import sha256

    return sha256(*(value.cpu().numpy() for value in policy.state_dict().values()))


def own_token(path: Path) -> str:
    """The token in the file `path`, which only its owner can read; made where there is none."""
    from robolearn.hil.wire.security import new_token

    if not path.exists():
        write_own(path, new_token() + "\n")
    return path.read_text().strip()


def write_own(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    from robolearn.io.atomic import replacing

    with (
        replacing(path) as part,
        os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file,
    ):
        file.write(text)
