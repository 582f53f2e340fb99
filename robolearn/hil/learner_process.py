"""A learner as a process: its run folder, its demonstrations, its server and the loop, built and run."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from pathlib import Path
from typing import Any

import torch

from policies.storage.checkpoint import load_chunk_policy
from policies.storage.loading import needed_by
from robolearn.core import BadInput, check_compatible
from robolearn.core.machine import resolve_device
from robolearn.data import Dataset
from robolearn.data.mixture import check_actions
from robolearn.data.replay import PlayedEpisode, RecordSchema
from robolearn.hil.learner import Learner, result_of
from robolearn.hil.learner_service import LearnerState, learner_methods
from robolearn.hil.processes import BESIDE, stopping
from robolearn.hil.settings import LearnerRun
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.hil.wire.messages import interface_hash, policy_hash
from robolearn.hil.wire.security import Address, Certificates, check_encryption, find_token, own_token
from robolearn.hil.wire.server import GrpcServer, Refusals, handshake_refusals
from robolearn.io.atomic import write_text
from robolearn.io.json_files import plain
from robolearn.rewards.choice import make_reward, reward_config
from robolearn.rewards.scoring import scored
from robolearn.runs import Progress, Run
from robolearn.runs.run import CONFIG

log = logging.getLogger(__name__)

MAY_DIFFER = ("policy", "demos.path", "env_steps", "episodes")  # between a run and its resumption
SHOWN = ("success", "intervention_rate", "updates")  # beside the progress bar


def run_learner(
    own: LearnerRun, *, listen: str, token: str, certs: Path | None, go_on: bool, nice: int, quiet: bool
) -> dict[str, Any]:
    """Listen for actors and learn until the budget is spent; the result of the run.

    Args:
      listen: HOST:PORT; port 0 takes a free one.
      token: of the actors; by default that of `certs`, of the environment, or a new one in <out>/token.
      certs: a folder of certificates; required beyond loopback.
      go_on: go on with the run in `out` where there is one; its end waits for an actor.
      nice: share of the processor to leave to other processes, 0 to 19.
      quiet: without a progress bar.

    Raises:
      BadInput: settings that do not fit, or no certificates beyond loopback.
      KeyboardInterrupt: it was stopped; `resume` goes on.
    """
    config, certificates = own.shared, Certificates(certs) if certs else None
    address, given = Address.parse(listen, "--listen"), find_token(token, certificates)
    check_encryption(address, certificates)
    os.nice(nice)
    torch.set_num_threads(1)
    base = load_chunk_policy(own.policy, resolve_device(own.device))
    model = make_reward(config.reward, base.interface)
    demos = Dataset.open(own.demos) if own.demos else None
    if demos is not None:
        check_compatible(needed_by(own.policy), demos.interface, what=f"--demos {own.demos}")
        check_actions(demos)
    prompt = demos.episode(0).task if demos is not None and demos.episodes else ""
    if reward_config(config.reward).needs_prompt and not prompt.strip():
        raise BadInput("--reward", got=f"{config.reward} without --demos", expected="demonstrations that name the task")

    def score(episode: PlayedEpisode) -> PlayedEpisode:
        return episode if model is None else scored(episode, model, prompt)

    resume = own.resume or (go_on and (own.out / CONFIG).exists())
    stored = _stored(own, base, demos)
    making = Run.create(own.out, stored, resume=resume, may_differ=MAY_DIFFER, beside=BESIDE)
    with making as run, stopping() as stop, contextlib.ExitStack() as stack:
        schema = RecordSchema(base.interface)
        receiver = TransitionReceiver(own.out / "log", schema, single=config.pace == "lockstep")
        stack.callback(receiver.close)
        state = LearnerState()
        episodes = () if demos is None else (demos.episode(i) for i in range(demos.episodes))
        demonstrations = (PlayedEpisode.of_demonstration(episode) for episode in episodes)
        learner = Learner(run, base, config, own, receiver, state, demonstrations, own, score, int(go_on))
        methods = learner_methods(
            receiver, state, run=_run_name(own.out), config=config.to_text(),
            interface=interface_hash(base.interface), policy=stored["sha256"], record_limit=schema.limit,
        )  # fmt: skip
        refusals = Refusals()
        known = own_token(own.out / "token") if given is None else given
        server = GrpcServer(address, methods, known, certificates, refusals)
        stack.callback(server.close)
        log.info("the learner listens at %s", server.address)
        progress = Progress("learning", total=own.env_steps, unit="control steps", show=SHOWN, quiet=quiet)
        with handshake_refusals(refusals) if certificates else contextlib.nullcontext(), progress as shown:
            done = learner.learn(stop, shown)
        stack.close()
        if not done:
            raise KeyboardInterrupt
        result = result_of(learner)
        run.finish(result)
    return result


def _stored(own: LearnerRun, base: Any, demos: Dataset | None) -> dict[str, Any]:
    return {
        "command": "hil",
        "policy": str(own.policy),
        "sha256": policy_hash(base),
        "interface": base.interface.to_json(),
        "demos": None if demos is None else {"path": str(own.demos), "frames": demos.frames},
        **{key: plain(value) for key, value in vars(own.shared).items()},
        "env_steps": own.env_steps,
        "episodes": own.episodes,
    }


def _run_name(out: Path) -> str:
    """A name that no other run has."""
    path = out / "run"
    if not path.exists():
        write_text(path, secrets.token_hex(16) + "\n")
    return path.read_text().strip()
