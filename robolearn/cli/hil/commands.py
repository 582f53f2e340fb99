"""``robolearn hil run``, ``learner``, ``actor`` and ``certs``."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from hardware.teleop.terminal import Keys
from robolearn.cli.choices import task_of
from robolearn.cli.hil.arguments import ActorArguments, LearnerArguments, WorldArguments, actor_result
from robolearn.cli.hil.summary import actor_lines, learner_lines, lines, print_lines
from robolearn.core import BadInput, Interface, bind_policy, check_compatible
from robolearn.core.machine import resolve_device
from robolearn.io.json_files import read_json
from robolearn.rewards.choice import KEY, reward_config
from robolearn.rewards.done import patience
from robolearn.runs import Progress, read_metrics
from robolearn.runs.command import PROGRAM, Command, words_of
from robolearn.runs.run import RESULT, check_new

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class HilRun(LearnerArguments, WorldArguments):
    """Teach a policy in a world or on an arm: an actor tries, an operator takes over where it fails, a learner learns
    from both.

    Starts actor and learner as processes, starts one again that was killed, and ends them together. Their output is in
    <out>/logs.
    """

    def run(self) -> dict[str, Any]:
        from policies.storage.loading import is_sampled_base, load_base, needed_by
        from policies.storage.loading import words_of as told
        from robolearn.data import Dataset
        from robolearn.data.mixture import check_actions
        from robolearn.data.replay.recorded import demonstrated
        from robolearn.deploy.processes import Program
        from robolearn.hil.processes import (
            ARM,
            BESIDE,
            SHOWN,
            SPOOL,
            free_address,
            learner_program,
            run_processes,
            shared_environment,
        )
        from robolearn.hil.task_words import task_words
        from robolearn.io.wire.security import new_token
        from sim.registry import WorldConfig

        self.check_learner()
        self.check_world()
        WorldConfig(self.task, dynamics=self.dynamics).check()
        if self.audit_share and not self.ends_online:
            expected = "a reward model, and --done-hz above 0"
            raise BadInput("--audit-share", got=f"{self.audit_share:g} with --reward {self.reward}", expected=expected)
        if self.live and self.pace != "realtime":
            raise BadInput("--pace", got=self.pace, expected="realtime beside a person or an arm")
        if self.robot and (delay := getattr(self.settings, "delay_steps", 0)):
            raise BadInput("--delay-steps", got=f"{delay} beside --robot", expected="0: an arm has a delay of its own")
        if self.reward == KEY and not self.teleop and self.console_port is None:
            raise BadInput("--reward", got=KEY, expected="an operator who presses it: --teleop or --console")
        check_new(self.out, self.resume, BESIDE)
        sampled = self.settings.samples_base
        demos, opened = Dataset.open(self.demos) if self.demos else None, None
        if is_sampled_base(self.policy, sampled):
            words = partial(task_words, self.words, demos, partial(words_of_world, self))
            opened = load_base(self.policy, "cpu", sampled=True, words=words)
        needed = needed_by(self.policy, opened=opened)
        patience(self.curriculum.help_after_s, needed.control_hz)
        if demos is not None:  # what is of another arm or task is refused before anything is started
            check_compatible(needed, demos.interface, what=f"--demos {self.demos}", subject="the policy")
            check_actions(demos)
            demonstrated([demos], "--demos", scored=not reward_config(self.reward).recorded)
        check_policy_fits(self, self.policy, opened)
        if self.reset == "policy":
            from robolearn.hil.arm import check_resets
            from robots.stations import load_contract

            check_policy_fits(self, Path(self.reset_policy))
            with _contract_of(self) as robot:
                check_resets(load_contract(robot), self.reward)
        if not self.demos and reward_config(self.reward).needs_prompt and not words_of_world(self).strip():
            raise BadInput("--words", got="nothing", expected=f"the task in a sentence, which {self.reward} reads")
        check_terminal(self.teleop)
        address = free_address()
        own = {f.name for f in fields(LearnerArguments)} - {"resume", "json", "verbose", "config"}
        sentence = told(opened)  # both ends get the one that was resolved here
        learner = replace(self, words=sentence)
        actor = replace(self, words=sentence or self.words)
        programs = (
            learner_program(words_of(learner, own), address, realtime=self.pace == "realtime"),
            Program("actor", (*PROGRAM, "hil", "actor", *actor.actor_words(address)), terminal=self.screen),
        )
        environment = shared_environment(new_token())
        begun = time.monotonic()
        quiet = self.json or (self.screen and sys.stdin.isatty())  # the device shows the state
        bar = Progress("teaching", total=self.env_steps, unit="control steps", show=SHOWN, quiet=quiet)
        with bar as progress:
            quit_early = run_processes(programs, self.out, environment, progress)
        wall_s = {"run": time.monotonic() - begun}
        arm = {"arm": read_json(path, what="the arm")} if (path := self.out / SPOOL / ARM).exists() else {}
        if quit_early:
            known = {key: value for row in list(read_metrics(self.out))[-1:] for key, value in row.items()}
            steps = {key: known.get(key, 0) for key in ("env_steps", "updates")}
            return {"run": str(self.out), "policy": str(self.out / "policy"), "finished": False, **steps, **arm,
                    "task": self.task, "wall_s": wall_s}  # fmt: skip
        result = read_json(self.out / RESULT, what=f"run {self.out}")
        return {**result, **arm, "finished": True, "task": self.task, "wall_s": result["wall_s"] | wall_s}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        print_lines(lines(self, self, result), console)

    def actor_words(self, address: str) -> list[str]:
        """Flags of the actor, which finds the learner at `address`."""
        own = {f.name for f in fields(WorldArguments)} - {f.name for f in fields(Command)}
        seen = replace(self, console=self.console_port)  # the actor's own output goes to a file
        return [
            *words_of(seen, own), "--policy", str(self.policy), "--out", str(self.out / "spool"),
            "--learner", address, "--json", *(["--reward", self.reward] if self.ends_online else []),
            *(["--done-check", self.done_check] if self.ends_online and self.done_check else []),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class HilLearner(LearnerArguments):
    """Learn from what actors send. Can be killed at any moment and resumed exactly; asks nothing."""

    listen: str = "127.0.0.1:7350"
    """HOST:PORT; port 0 takes a free one. Beyond loopback --certs is required."""
    token: str = ""
    """Token that actors must bring; by default that of --certs, ROBOLEARN_HIL_TOKEN, or a new one in <out>/token."""
    certs: Path | None = None
    """A folder of `robolearn hil certs`."""
    go_on: bool = False
    """Go on with the run in --out if there is one: --resume for programs that start this one again."""
    nice: int = 0
    """Niceness of the process, 0 to 19: how much of the processor it leaves to others."""

    def run(self) -> dict[str, Any]:
        from robolearn.hil.learner_process import run_learner

        self.check_learner()
        return run_learner(
            self, listen=self.listen, token=self.token, certs=self.certs, go_on=self.go_on, nice=self.nice,
            quiet=self.json,
        )  # fmt: skip

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        print_lines(learner_lines(self, result), console)


@dataclass(frozen=True, kw_only=True)
class HilActor(ActorArguments):
    """Act in a world or on an arm, step by step, for a learner, and let an operator take over. Asks nothing on standard
    input unless your device is there; what it did is on its disk before it is sent, and goes on from there after a
    kill."""

    def run(self) -> dict[str, Any]:
        import torch

        from policies.storage.loading import load_base
        from policies.storage.loading import words_of as told
        from robolearn.hil.task_words import task_words

        self.check_world()
        torch.set_num_threads(1)
        words = partial(task_words, "", None, partial(words_of_world, self))
        base = load_base(self.policy, resolve_device(self.device), sampled=True, words=words)  # the learner judges it
        acting = replace(self, words=told(base) or self.words)
        if self.robot:
            from robolearn.cli.hil.arm import play_on_arm

            return play_on_arm(acting, base)
        return acting._play_in_a_world(base)

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        print_lines(actor_lines(self, result), console)

    def _play_in_a_world(self, base: Any) -> dict[str, Any]:
        from robolearn.hil.actor import act_in_world
        from sim.registry import WorldConfig

        outbox, link = self.make_link(base)
        with contextlib.closing(outbox), contextlib.ExitStack() as stack:
            world = WorldConfig(self.task, dynamics=self.dynamics, threads=1).matching(base.interface)
            env = world.build(1)
            stack.callback(env.close)
            if self.teleop and world.family.has_scene:
                env.max_episode_steps = round(self.seconds * env.interface.control_hz)
            bind_policy(base, env.interface, what=f"policy {self.policy} in {self.task}")
            played, period = act_in_world(
                env,
                base,
                outbox,
                link,
                self.name,
                self._operators(env),
                lambda stop: self._people(env, stop),
                self.words,
                lambda config: self.make_done(config, base.interface),
            )
        return actor_result(self, played, outbox, link, period)

    @contextlib.contextmanager
    def _people(self, env: Any, stop: Callable[[], bool]) -> Iterator[tuple[Any, Any]]:
        """(console, person with a device), each or None."""
        from robolearn.hil.device_operator import DeviceOperator
        from robots import ROBOTS
        from sim.registry import WorldConfig

        with self.opened_page(env.interface, getattr(env, "scene", None), stop) as page:
            if not self.teleop:
                yield page, None
                return
            robot = ROBOTS.get(env.interface.embodiment)
            if robot is None:
                raise BadInput("--teleop", got=f"a world with {env.interface.embodiment}", available=ROBOTS)
            simulated = WorldConfig(self.task).family.simulates_arm  # others may be an arm in the guise of a world
            with self.opened_device(env.interface, robot, simulated=simulated) as device:
                scene = None if self.screen else getattr(env, "scene", None)
                person = DeviceOperator(device, env.interface, robot, scene=scene, ending=stop, console=page)
                yield person, person

    def _operators(self, env: Any) -> Callable[[int], Any] | None:
        if self.operator == "none":
            return None
        from sim.experts import make_operator

        make_operator(self.task, env.interface, 1, 0)  # a task without a script is refused now
        return lambda seed: make_operator(self.task, env.interface, 1, seed)


@dataclass(frozen=True, kw_only=True)
class HilCerts(Command):
    """Make an authority, certificates for a learner and its actors, and a token.

    Copy ca.pem, actor.pem, actor.key and token to the actors' machines; ca.key stays here.
    """

    out: Path
    """The new folder."""
    hosts: tuple[str, ...] = ()
    """Names and addresses by which actors reach the learner, beside localhost and this machine's name."""

    def run(self) -> dict[str, Any]:
        from robolearn.io.certificates import DAYS, make_certificates

        paths = make_certificates(self.out, self.hosts)
        return {"certs": str(self.out), "files": sorted(path.name for path in paths), "days": DAYS}


def check_policy_fits(world: WorldArguments, policy: Path, opened: Any = None) -> None:
    """Raise `BadInput` unless `policy` is one to begin with, for the task's world or for the arm of --robot.

    Of a policy of ours the ``config.json`` is read alone, not the weights; one of LeRobot's is `opened` already.
    """
    from policies.settings import POLICIES
    from policies.storage.config_file import CONFIG, policy_folder, read_config
    from policies.storage.loading import check_policy, stated_by

    if opened is None and (stored := read_config(policy_folder(policy) / CONFIG))["kind"] not in POLICIES:
        from policies.registry import unknown_kind  # late: it imports torch

        raise unknown_kind(stored, f"policy {policy}: kind", POLICIES)
    needed = stated_by(policy) if opened is None else opened.interface
    offered, where, simulated = _on_arm(world, needed) if world.robot else _in_world(world, needed)
    what = f"policy {policy} {where}"
    check_policy(policy, offered, what=what, simulated=simulated, opened=opened)
    check_compatible(needed, offered, what=what)  # words and goals, too: none are given here


def words_of_world(world: WorldArguments) -> str:
    """The task of an actor in words, or nothing where there are none."""
    if world.robot:
        from robolearn.cli.hil.arm import words_on_arm
        from robots.stations import load_contract

        with _contract_of(world) as robot:
            return words_on_arm(world, load_contract(robot))
    from sim.registry import WorldConfig

    return world.words or task_of(WorldConfig(world.task))


def check_terminal(teleop: str) -> None:
    """Raise `BadInput` where the device `teleop` is the keyboard and there is no terminal to read."""
    if teleop != "keyboard":
        return

    keys = Keys()
    keys.open()  # as the actor will
    keys.close()


def _in_world(world: WorldArguments, needed: Interface) -> tuple[Interface, str, bool]:
    from sim.registry import WorldConfig

    env = WorldConfig(world.task, dynamics=world.dynamics, threads=1).matching(needed).build(1)
    try:
        return env.interface, f"in {world.task}", True
    finally:
        env.close()


def _on_arm(world: WorldArguments, needed: Interface) -> tuple[Interface, str, bool]:
    from robolearn.cli.hil.arm import needs_of, station_of

    with _contract_of(world) as robot:
        contract = station_of(robot, world.task, needs_of(world, needed))
    return contract.interface, f"on {contract.name}", contract.simulated


def _contract_of(world: WorldArguments) -> AbstractContextManager[str]:
    """The contract of --robot, by name or file; with --rehearse that of the emulated station."""
    from robolearn.bench.emulators.rehearsal import rehearsal

    return rehearsal(world.robot) if world.rehearse else nullcontext(world.robot)
