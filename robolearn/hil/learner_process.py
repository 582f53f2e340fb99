"""A learner as a process: its run folder, its demonstrations, its server and the loop, built and run."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from policies.storage.checkpoint import load_chunk_policy
from policies.storage.loading import needed_by
from robolearn.core import check_compatible
from robolearn.core.machine import resolve_device
from robolearn.data import Dataset
from robolearn.data.replay import PlayedEpisode, RecordSchema
from robolearn.hil.learner import Learner, result_of
from robolearn.hil.learner_service import LearnerState, learner_methods
from robolearn.hil.processes import BESIDE, stopping
from robolearn.hil.settings import Budget, LearnerConfig, LearnerOptions
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.hil.wire.messages import interface_hash, policy_hash
from robolearn.hil.wire.security import Address, Certificates, check_encryption, find_token, own_token
from robolearn.hil.wire.server import GrpcServer, Refusals, handshake_refusals
from robolearn.io.atomic import write_text
from robolearn.io.json_files import plain
from robolearn.rewards.choice import make_reward
from robolearn.rewards.scoring import scored
from robolearn.runs import Progress, Run
from robolearn.runs.run import CONFIG

log = logging.getLogger(__name__)

MAY_DIFFER = ("policy", "demos.path", "env_steps", "episodes")  # between a run and its resumption
SHOWN = ("success", "intervention_rate", "updates")  # beside the progress bar


@dataclass(frozen=True, kw_only=True)
class LearnerProcess:
    """A learner that listens for actors.

    Attributes:
      policy, out: folders of the policy to begin with, and of the run.
      demos: a data set, or None.
      device: for the learner: auto, cpu, cuda or cuda:<i>.
      listen: HOST:PORT; port 0 takes a free one.
      token: of the actors; by default that of `certs`, of the environment, or a new one in <out>/token.
      certs: a folder of certificates; required beyond loopback.
      resume: go on with the run in `out`.
      go_on: the same where there is one; its end waits for an actor.
      nice: share of the processor to leave to other processes, 0 to 19.
      quiet: without a progress bar.
    """

    policy: Path
    out: Path
    config: LearnerConfig
    budget: Budget
    options: LearnerOptions
    demos: Path | None = None
    device: str = "auto"
    listen: str = "127.0.0.1:7350"
    token: str = ""
    certs: Path | None = None
    resume: bool = False
    go_on: bool = False
    nice: int = 0
    quiet: bool = False

    def run(self) -> dict[str, Any]:
        """Learn until the budget is spent; the result of the run.

        Raises:
          BadInput: settings that do not fit, or no certificates beyond loopback.
          KeyboardInterrupt: it was stopped; `resume` goes on.
        """
        certificates = Certificates(self.certs) if self.certs else None
        address, token = Address.parse(self.listen, "--listen"), find_token(self.token, certificates)
        check_encryption(address, certificates)
        os.nice(self.nice)
        torch.set_num_threads(1)
        base = load_chunk_policy(self.policy, resolve_device(self.device))
        model = make_reward(self.config.reward, base.interface)
        demos = Dataset.open(self.demos) if self.demos else None
        if demos is not None:
            check_compatible(needed_by(self.policy), demos.interface, what=f"--demos {self.demos}")
        prompt = demos.episode(0).task if demos is not None and demos.episodes else ""

        def score(episode: PlayedEpisode) -> PlayedEpisode:
            return episode if model is None else scored(episode, model, prompt)

        resume = self.resume or (self.go_on and (self.out / CONFIG).exists())
        stored = self._stored(base, demos)
        making = Run.create(self.out, stored, resume=resume, may_differ=MAY_DIFFER, beside=BESIDE)
        with making as run, stopping() as stop, contextlib.ExitStack() as stack:
            schema = RecordSchema(base.interface)
            receiver = TransitionReceiver(self.out / "log", schema, single=self.config.pace == "lockstep")
            stack.callback(receiver.close)
            state = LearnerState()
            episodes = () if demos is None else (demos.episode(i) for i in range(demos.episodes))
            demonstrations = (PlayedEpisode.of_demonstration(episode) for episode in episodes)
            learner = Learner(
                run, base, self.config, self.budget, receiver, state, demonstrations, self.options, score
            )  # fmt: skip
            methods = learner_methods(
                receiver, state, run=self._run_name(), config=self.config.to_text(),
                interface=interface_hash(base.interface), policy=stored["sha256"], record_limit=schema.limit,
            )  # fmt: skip
            refusals = Refusals()
            token = own_token(self.out / "token") if token is None else token
            server = GrpcServer(address, methods, token, certificates, refusals)
            stack.callback(server.close)
            log.info("the learner listens at %s", server.address)
            steps = self.budget.env_steps
            progress = Progress("learning", total=steps, unit="control steps", show=SHOWN, quiet=self.quiet)
            with handshake_refusals(refusals) if certificates else contextlib.nullcontext(), progress as shown:
                done = learner.learn(stop, shown)
            stack.close()
            if not done:
                raise KeyboardInterrupt
            result = result_of(learner)
            run.finish(result)
        return result

    def _stored(self, base: Any, demos: Dataset | None) -> dict[str, Any]:
        """The config of the run folder."""
        return {
            "command": "hil",
            "policy": str(self.policy),
            "sha256": policy_hash(base),
            "interface": base.interface.to_json(),
            "demos": None if demos is None else {"path": str(self.demos), "frames": demos.frames},
            **{key: plain(value) for key, value in vars(self.config).items()},
            **asdict(self.budget),
        }

    def _run_name(self) -> str:
        """A name that no other run has."""
        path = self.out / "run"
        if not path.exists():
            write_text(path, secrets.token_hex(16) + "\n")
        return path.read_text().strip()
