"""The actor on an arm, put together: the learner's policy, the person's device, the recording whose steps it sends."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from hardware.recording import Session
from hardware.teleop import Device
from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.reset_policy import PolicyReset
from hardware.teleop.supervised import Supervised
from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Interface
from robolearn.deploy import StackProcesses
from robolearn.deploy.recorder import START_S, arm_result, run_recorder
from robolearn.hil.actor import ActorResult, Periods
from robolearn.hil.agent import DoubleBufferedPolicy
from robolearn.hil.arm_recording import ENDLESS, HilRecording, LearnedPolicy, OutboxWriter
from robolearn.hil.link import Link
from robolearn.hil.operator_console import OperatorConsole
from robolearn.hil.outbox import Outbox
from robolearn.hil.processes import stopping
from robolearn.hil.settings import LearnerConfig
from robolearn.hil.spot_labels import SpotLabels
from robolearn.hil.wire.messages import Period
from robolearn.rewards.choice import TASK
from robolearn.rewards.online import OnlineDone
from robots.stations import Contract


def observed(contract: Contract, *policies: Interface) -> Interface:
    """Observed features of the station: those of the policies, and the arm's state, which the person's device needs."""
    offered, wanted = contract.interface, {"proprio"}.union(*(policy.observation for policy in policies))
    return dataclasses.replace(
        offered, observation={key: spec for key, spec in offered.observation.items() if key in wanted}
    )


def check_resets(contract: Contract, reward: str) -> None:
    """Raise `BadInput` where the episodes of an arm whose things a policy brings back have no judge."""
    if contract.simulated and reward == TASK:
        expected = "--reward key, or a reward model: the simulated task judges one episode from each of its starts"
        raise BadInput("--reset policy", got=f"--reward {TASK}", expected=expected)


class ArmActor:
    """Parts of the recording node of an actor.

    Args:
      base: the policy that the learner's weights go into.
      link: open, and not started; it is.
      device: of the person, open.
      console: of the operator, or None.
      task: in words.
      limit_s: longest episode [s].
      check: called ten times a second; raises where something that the arm needs has died.
      done: ends episodes as solved, or None.
      homes: between episodes the arm goes home by itself; not a simulated one, which begins anew.
      back: a second policy that brings things back before that, on a simulated arm too; or None.
      audit_share: of the episodes at whose end the person is asked whether they succeeded.

    Attributes:
      session, make: of the recording.
      writer: of its steps into the outbox.
      periods: of its control steps.

    Raises:
      BadInput: the learner's settings do not suit an arm.
    """

    def __init__(
        self,
        base: ChunkPolicy,
        contract: Contract,
        outbox: Outbox,
        link: Link,
        config: LearnerConfig,
        device: Device,
        console: OperatorConsole | None,
        task: str,
        limit_s: float,
        check: Callable[[], None],
        done: OnlineDone | None = None,
        homes: bool = False,
        back: PolicyReset | None = None,
        audit_share: float = 0.0,
    ) -> None:
        if config.pace != "realtime":
            raise BadInput("learner", got=f"--pace {config.pace}", expected="realtime beside an arm")
        if delay := getattr(config.settings, "delay_steps", 0):
            raise BadInput("learner", got=f"--delay-steps {delay}", expected="0: an arm has a delay of its own")
        if back is not None:
            check_resets(contract, config.reward)
        if audit_share and done is None:
            expected = "a reward model that ends episodes: --reward, and --done-hz above 0"
            raise BadInput("--audit-share", got=f"{audit_share:g} without one", expected=expected)
        path = outbox.log.path.with_suffix(".labels.json")
        labels = SpotLabels(path, audit_share, config.seed) if audit_share else None
        buffered = DoubleBufferedPolicy(lambda: config.settings.build(base, seed=config.seed))
        self.periods = Periods()
        link.measure = self.periods.measured
        link.start(buffered)
        policy = LearnedPolicy(buffered, base.interface, base.execute_steps)
        player = ChunkPlayer(policy, config.seed, simulated=contract.simulated)
        supervised = Supervised(device, player, contract.interface)
        seen = [policy.interface for policy in (base, back) if policy is not None]
        self.close = supervised.close
        self.writer = OutboxWriter(outbox, tuple(base.interface.observation), link, task)
        self.session = Session(
            contract, supervised, observed(contract, *seen), self.writer, task, ENDLESS, limit_s=limit_s,
            start_s=START_S, simulated=contract.simulated, homes=homes and not contract.simulated, back=back,
            watch=lambda _: check(),
        )  # fmt: skip
        self.make = partial(
            HilRecording, link=link, buffered=buffered, hold=supervised.hold, periods=self.periods, console=console,
            by_task=contract.simulated and config.reward == TASK, done=done, words=task,
            labels=labels,
        )  # fmt: skip


def act_on_arm(
    base: ChunkPolicy,
    contract: Contract,
    outbox: Outbox,
    link: Link,
    station: Callable[[int], AbstractContextManager[StackProcesses]],
    people: AbstractContextManager[tuple[Device, OperatorConsole | None]],
    *,
    task: str,
    limit_s: float,
    priority: int,
    enclaves: bool,
    homes: bool = False,
    audit_share: float = 0.0,
    make_done: Callable[[LearnerConfig], OnlineDone | None] = lambda _: None,
    make_back: Callable[[LearnerConfig], PolicyReset | None] = lambda _: None,
) -> tuple[ActorResult, Period, dict[str, Any]]:
    """Act on the arm of `contract` for the learner of `link` until its run is over, or the person has enough.

    Args:
      link: not yet open; closed at the end.
      station: seed of the simulated arm → the station's nodes.
      people: opens the person's device, and the console or None.
      task, limit_s, homes, audit_share: see `ArmActor`.
      make_done: see `robolearn.hil.actor.act_in_world`.
      make_back: the learner's settings → the second policy, see `ArmActor`.
      priority, enclaves: of the node, see `robolearn.deploy.recorder.run_recorder`.

    Returns:
      The result, the period of the control steps, and the arm's part of the command's result.

    Raises:
      BadInput: the learner refuses, or its settings do not suit an arm.
      KeyboardInterrupt: it was stopped.
    """
    link.task = task
    with stopping() as stop, contextlib.closing(link):
        config = link.open(stop)
        if config is None:
            raise KeyboardInterrupt
        with contextlib.ExitStack() as stack:
            nodes = stack.enter_context(station(config.seed * 1_000_003 + len(outbox)))
            device, console = stack.enter_context(people)
            if (done := make_done(config)) is not None:
                stack.callback(done.close)
            if (back := make_back(config)) is not None:
                stack.callback(back.close)
            actor = ArmActor(
                base, contract, outbox, link, config, device, console, task, limit_s, nodes.check, done, homes, back,
                audit_share,
            )  # fmt: skip
            stack.callback(actor.close)
            node = run_recorder(actor.session, priority=priority, enclaves=enclaves, name="hil", make=actor.make)
        link.drain(1.0)
        if node.interrupted:
            raise KeyboardInterrupt
        assert node.recording is not None
        writer = actor.writer
        played = ActorResult(writer.episodes, writer.steps, writer.interventions, quit=not link.finished)
        arm = {"robot": contract.name, "stops": node.recording.episodes.dropped, **arm_result(node)}
        return played, actor.periods.measured(), arm
