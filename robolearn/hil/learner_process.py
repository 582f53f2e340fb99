"""A learner as a process: its run folder, its demonstrations, its server and the loop, built and run."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from policies.storage.loading import base_sha256, load_base, words_of
from policies.wrappers.prompted import without_instructions
from robolearn.core import BadInput, Interface, RewardModel, check_compatible
from robolearn.core.machine import resolve_device
from robolearn.data import Dataset
from robolearn.data.mixture import check_actions
from robolearn.data.replay import PlayedEpisode, RecordSchema, ScoreLog
from robolearn.data.replay.recorded import demonstrated
from robolearn.hil.learner import Learner, result_of
from robolearn.hil.learner_service import LearnerState, learner_methods
from robolearn.hil.processes import BESIDE, stopping
from robolearn.hil.scoring import EpisodeScoring
from robolearn.hil.settings import LearnerConfig, LearnerRun
from robolearn.hil.task_words import check_words_taken, task_words
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.hil.wire.messages import interface_hash
from robolearn.io.atomic import write_text
from robolearn.io.json_files import plain
from robolearn.io.wire.security import Address, Certificates, check_encryption, find_token, own_token
from robolearn.io.wire.server import GrpcServer, Refusals, handshake_refusals
from robolearn.rewards.choice import make_reward, reward_config
from robolearn.rewards.scoring import Agreed, with_score
from robolearn.rewards.stored import model_name
from robolearn.runs import Progress, Run
from robolearn.runs.run import CONFIG

log = logging.getLogger(__name__)

MAY_DIFFER = ("policy", "demos.path", "env_steps", "episodes")  # between a run and its resumption
ADDED = (
    "demos.content",
    "done_check",
    "settings.initial_noise",
    "curriculum.help_after_s",
    "curriculum.help_at_loss",
)  # that a run of an earlier version has not
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
    demos = Dataset.open(own.demos) if own.demos else None
    sampled = config.settings.samples_base
    base = load_base(
        own.policy, resolve_device(own.device), sampled=sampled, words=lambda: task_words(own.words, demos)
    )
    check_words_taken(own.words, words_of(base))
    model, name, asks = reward_model(config, base.interface, resolve_device(own.device))
    if demos is not None:
        check_compatible(
            without_instructions(base.interface), demos.interface, what=f"--demos {own.demos}", subject="the policy"
        )
        check_actions(demos)
    tasks = [] if demos is None else _tasks(demos)
    if asks and not all(task.strip() for task in tasks):
        raise BadInput(
            f"--demos {own.demos}", got="an episode without words", expected=f"the task, for {config.reward}"
        )
    sets = [] if demos is None else [demos]
    demonstrations = demonstrated(sets, "--demos", scored=model is not None)
    resume = own.resume or (go_on and (own.out / CONFIG).exists())
    stored = stored_config(own, base, demos)
    making = Run.create(own.out, stored, resume=resume, may_differ=MAY_DIFFER, added=ADDED, beside=BESIDE)
    with making as run, stopping() as stop, contextlib.ExitStack() as stack:
        schema = RecordSchema(base.interface)
        receiver = TransitionReceiver(own.out / "log", schema, single=config.pace == "lockstep")
        stack.callback(receiver.close)
        state, scoring = LearnerState(), None
        if model is not None:
            scores = ScoreLog(own.out / "log")
            words = tasks[0] if tasks else ""
            scoring = EpisodeScoring(model, name, scores, own.score_timeout_s, words, receiver.wake, stop)
            stack.callback(scoring.close)
        shown = (episode for _, episode in demonstrations)
        if demos is not None and scoring is not None:
            shown = _scored(demonstrations, demos, scoring, config)
        learner = Learner(run, base, config, own, receiver, state, shown, own, scoring, int(go_on))
        methods = learner_methods(
            receiver, state, run=_run_name(own.out), config=config.to_text(),
            interface=interface_hash(base.interface), policy=stored["sha256"], record_limit=schema.limit,
            needs_words=asks and not tasks, words=words_of(base),
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


def reward_model(config: LearnerConfig, interface: Interface, device: str) -> tuple[RewardModel | None, str, bool]:
    """The model of --reward with that of --done-check, its identity, and whether the task in words is needed; no model
    for rewards that are in the records."""
    texts = [config.reward, *([config.done_check] if config.done_check else [])]
    models = [make_reward(text, interface, device) for text in texts]
    found = [model for model in models if model is not None]
    if len(found) < len(texts):
        return None, "", False
    asks = any(  # of the model itself where it is served
        reward_config(text).needs_prompt or getattr(model, "needs_prompt", False)
        for text, model in zip(texts, found, strict=True)
    )
    name = " and ".join(model_name(text, model) for text, model in zip(texts, found, strict=True))
    return (found[0] if len(found) == 1 else Agreed(found)), name, asks


def _tasks(demos: Dataset) -> list[str]:
    """The task of each demonstration in words."""
    return [demos.episode(i).task for i in range(demos.episodes)]


def _scored(
    demonstrations: Iterable[tuple[int, PlayedEpisode]], demos: Dataset, scoring: EpisodeScoring, config: LearnerConfig
) -> Iterator[PlayedEpisode]:
    """The demonstrations out of `demos`, with the rewards of a model; those whose reward is withheld are left out.

    Raises:
      BadInput: all are.
    """
    left_out: list[str] = []
    count, content = 0, demos.frames_content()
    rule = config.done_rule(demos.interface.control_hz)
    log.info("the reward model scores the demonstrations whose scores are not stored yet")
    for i, episode in demonstrations:
        count += 1
        stored = scoring.score_demonstration(content, i, episode)
        if stored.score is None:
            left_out.append(stored.withheld)
            continue
        yield with_score(episode, stored.score, rule, gamma=config.settings.gamma)
    if left_out and len(left_out) == count:
        raise BadInput("--reward", got=f"no score of any demonstration ({left_out[0]})", expected="scores")
    if left_out:
        log.warning("%d of %d demonstrations are left out: their reward is withheld", len(left_out), count)


def stored_config(own: LearnerRun, base: Any, demos: Dataset | None) -> dict[str, Any]:
    """The configuration of a run from the policy `base`, by which a resumption is known to be of the same."""
    shown = None
    if demos is not None:
        frames = demos.frames_content()
        shown = {"path": str(own.demos), "sha256": frames, "content": demos.content(frames)}
    return {
        "command": "hil",
        "policy": str(own.policy),
        "sha256": base_sha256(base),
        "interface": base.interface.to_json(),
        **({"words": words} if (words := words_of(base)) else {}),
        "demos": shown,
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
