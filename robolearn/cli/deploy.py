"""``robolearn deploy``: a policy on the simulated arm or a real one, behind the safety filter."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from hardware.node_parameters import PolicyParameters, parameter_names
from policies.storage.backends import backend_device, check_backend
from policies.storage.onnx_policy import need_onnx
from policies.wrappers.goals import save_goals
from robolearn.cli.choices import AnyStation, SimTask
from robolearn.cli.policy_flags import EXPERT, GoalSource, PolicyCommand, check_goal_flags
from robolearn.cli.station_command import MovingCommand
from robolearn.core import BadInput, RobolearnError, look_up
from robolearn.core.switches import Count, Within
from robolearn.runs.command import rate_text

if TYPE_CHECKING:
    from robolearn.deploy import Deployment, Simulation
    from robolearn.deploy.session import ArmOperator
    from robots.stations import AnyContract


REHEARSED_HOMING_S = 12.0  # of the simulated arm's episode, which begins with its first motion


@dataclass(frozen=True, kw_only=True)
class Deploy(PolicyCommand, MovingCommand):
    """Run a policy on an arm: starts the nodes, arms, counts successes, and ends everything cleanly.

    On the simulated arm the episodes run by themselves. On a real arm you are asked before it moves, you hold the
    emergency stop, and you judge each episode. A stop of the safety filter latches and ends it all: the episode counts
    as a failure, and the successes so far are printed.
    """

    robot: AnyStation = "sim"
    """The robot contract, of one arm or of two, by name or as a file of your own."""
    task: SimTask = "lift"
    """On the simulated arm, and in a rehearsal."""
    episodes: Count = 50
    """Number of episodes."""
    delay_steps: Annotated[int, Within(0)] = 0
    """On the simulated arm and in a rehearsal: control steps by which every decision comes late, as those of a slow
    policy do. Meanwhile the arm goes on with what is predicted beyond what is executed (`train --horizon`)."""
    seconds: float = 30.0
    """On a real arm and in a rehearsal: longest episode [s]."""
    reset: Literal["person", "motion"] = "person"
    """Between episodes: motion opens the gripper where the arm is, lifts the tool and brings the arm home by itself,
    slowly and through the safety filter; then, or with person alone, you put everything in its place. On a real arm and
    in a rehearsal, whose episodes are 12 s longer for it."""
    reward: str = ""
    """A reward model that judges each episode, too, by what the policy observes, once each decision and at the end:
    MODULE:CLASS, serve:HOST:PORT or the folder of a critic. It ends none; --json has its verdicts (called_done)."""
    launch: Path | None = None
    """Start the nodes by `ros2 launch` with this file, such as one of yours that adds to deploy.launch.py, in place of
    this command's processes. It is given robot:=, policy:= and what else is not a default, and has to know them."""
    dry_run: bool = False
    """Everything but the last step: nothing is published to the controller."""
    video: Path | None = None
    """Film the run into this file (.mp4), at the control rate: the simulated arm and its task, or what the cameras of a
    real station see. A program of its own draws it; nothing that drives the arm waits for that."""

    record: Path | None = None
    """Store the episodes in this folder as a data set, with the executed actions and the outcomes; it is added to where
    it exists. Recorded are the cameras of a real station, on the simulated arm those that the policy sees. A program of
    its own writes it; one that cannot keep up leaves an episode out, and says so."""
    record_task: str = ""
    """With --record: the task in words; by default --words, on the simulated arm the task's."""

    def run(self) -> dict[str, Any]:
        from robolearn.cli.terminal_operator import TerminalOperator

        return self.run_beside(TerminalOperator(self.yes))

    def run_beside(self, operator: ArmOperator) -> dict[str, Any]:
        """`run` with this person beside a real arm."""
        from hardware.execution.homing import goes_home
        from robolearn.deploy.processes import warn_of_enclaves
        from robots.dynamics_file import load_dynamics
        from robots.stations import load_any_contract
        from sim.embedded.scene import check_robot
        from sim.tasks import TASKS

        check_backend(self.backend, self.precision)
        if self.reward:
            from robolearn.rewards.choice import reward_config

            reward_config(self.reward, recorded=False)
        if self.backend == "onnx":
            need_onnx("onnx", "onnxscript", "onnxruntime")
        if self.reset == "motion" and self.dry_run:
            raise BadInput(
                "--dry-run", got="it with --reset motion", expected="--reset person: nothing moves the arm home"
            )
        if self.record is not None and self.dry_run:
            raise BadInput("--dry-run", got="it with --record", expected="no --record: nothing is executed")
        if self.seconds <= 0:
            raise BadInput("--seconds", got=self.seconds, expected="more than 0")
        if self.launch is not None and self.enclaves:
            raise BadInput("--enclaves", got="it with --launch", expected="none: launch files pass no enclaves on")
        if self.rehearse:
            with self.rehearsed() as there:
                return there.run_beside(operator)
        warn_of_enclaves(self.enclaves)
        contract, simulation = load_any_contract(self.robot), None
        self.check_simulated_only(contract, delay_steps=(self.delay_steps, 0))
        if contract.simulated:
            emulated = is_emulated(contract)
            dynamics = load_dynamics(self.dynamics)
            for part in contract.robot.parts:
                dynamics.check(part.robot)
            if not emulated:
                goes_home(self.reset, contract, instead="--rehearse")
            homing_s = REHEARSED_HOMING_S if self.reset == "motion" else 0.0
            longest_s = self.seconds + homing_s if emulated else None
            names, simulation = simulated_arm(self.task, longest_s, self.dynamics)
            check_robot(contract.robot, self.task, TASKS[self.task]().arms)
            contract = contract.with_objects(names)
        if self.video is not None:
            from robolearn.cli.film import check_film

            check_film(self.video, contract)
        with tempfile.TemporaryDirectory(prefix="robolearn-goals-") as folder:
            deployment = self._deployment(contract, simulation, self._goals(contract, Path(folder)))
            if self.video is None:
                return self._deploy(deployment, operator)
            return self._film(deployment, operator, self.video)

    def _film(self, deployment: Deployment, operator: ArmOperator, video: Path) -> dict[str, Any]:
        from hardware.ros2.environment import prepare
        from robolearn.cli.film import filmed
        from robolearn.deploy.processes import choose_domain

        prepare()
        choose_domain(self.domain, deployment.contract.simulated)
        film = None
        try:
            with filmed(video, self.robot, deployment.contract, self.task, self.enclaves) as film:
                result = self._deploy(deployment, operator, film.sees)
        except RobolearnError as error:
            if film is not None and film.path is not None:
                error.add_note(f"video: {film.path}")
            raise
        return {**result, "video": film.path and str(film.path), **({"video_error": film.error} if film.error else {})}

    def _goals(self, contract: AnyContract, folder: Path) -> str:
        """Goals for the policy node; those of the expert are written into `folder`."""
        check_goal_flags(self.goals, self.goal_choice)
        if self.goals != EXPERT:
            return str(Path(self.goals).absolute()) if self.goals else ""

        from policies.storage.loading import check_goals_given, stated_by
        from sim.registry import WorldConfig

        if not contract.simulated:
            raise BadInput(f"--goals {EXPERT}", got=f"the arm {contract.name}", expected="a data set, or robot sim")
        check_goals_given(self.policy, True, what=f"policy {self.policy}")
        world = WorldConfig(self.task, robot=contract.interface.embodiment)
        source = GoalSource(EXPERT, self.goal_choice, world, np.array([self.episodes]), self.seed)
        save_goals(source.demonstrated(stated_by(self.policy)), folder / "goals.safetensors")
        return str(folder / "goals.safetensors")

    def _deployment(self, contract: AnyContract, simulation: Simulation | None, goals: str) -> Deployment:
        """The deployment; refused before anything is started where there is no terminal to ask on."""
        from robolearn.cli.terminal_operator import check_may_ask, may_ask
        from robolearn.deploy import Deployment
        from robolearn.deploy.deployment import checked

        names = parameter_names(PolicyParameters)
        asked = {flag.name: getattr(self, flag.name) for flag in fields(PolicyCommand) if flag.name in names}
        asked |= {
            "policy": str(self.policy),
            "contract": self.robot,
            "goals": goals,
            "guide": str(self.guide or ""),
            "device": self.device if self.backend == "torch" else backend_device(self.backend, self.device),
            "denoise_steps": self.denoise_steps or PolicyParameters.denoise_steps,
            "guidance": PolicyParameters.guidance if self.guidance is None else float(self.guidance),
            "delay_steps": self.delay_steps,
            "reward": self.reward,
            "reward_ends": not self.reward,
            "realtime_priority": self.realtime_priority,
        }
        policy = PolicyParameters(**asked)
        deployment = Deployment(
            policy=policy,
            contract=contract,
            episodes=self.episodes,
            limit_s=self.seconds,
            homes=self.reset == "motion",
            dry_run=self.dry_run,
            simulation=simulation,
            enclaves=self.enclaves,
            launch=self.launch,
        )
        if not may_ask(contract, self.yes):
            checked(deployment)  # that it is for another arm is what to learn first: a terminal would not help
        check_may_ask(contract, self.yes)
        return deployment

    def _deploy(
        self, deployment: Deployment, operator: ArmOperator, watched: Callable[[], bool] = lambda: True
    ) -> dict[str, Any]:
        from robolearn.deploy import deploy

        given: dict[str, Any] = {"domain": self.domain, "logs": self.logs, "quiet": self.json, "watched": watched}
        if self.record is not None:
            from robolearn.cli.rollouts import recorded

            given["recorder"] = partial(recorded, self.record, self.record_task, self.task)
        result = deploy(deployment, operator, **given)
        if result["ended"]:
            kind = "" if self.exit_code(result) == 130 else "error: "
            print(f"robolearn: {kind}{result['ended']} (logs: {result['logs']})", file=sys.stderr)
        return result

    def exit_code(self, result: Mapping[str, Any]) -> int:
        from robolearn.deploy.deployment import INTERRUPTED

        failed = int("video_error" in result or "record_error" in result)
        return {None: failed, INTERRUPTED: 130}.get(result["ended"], 1)

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        if result["ended"]:
            done = result["success"]["episodes"]
            console.print(f"ended       after {done} of {result['asked']} episodes: {result['ended']}")
        console.print(f"success     {rate_text(result['success'])}")
        if "called_done" in result:
            called = [one for one in zip(result["called_done"], result["succeeded"], strict=True) if one[0] is not None]
            done, agreed = sum(a for a, _ in called), sum(a == b for a, b in called)
            console.print(f"reward      called {done} of {len(called)} done, the same as the other judge in {agreed}")
        latency = result["latency_ms"]
        if latency["p50"] is not None:
            console.print(f"latency     {latency['p50']:.1f} ms (p99 {latency['p99']:.1f}) from observation to command")
        if result["violations"] is not None:
            peak = result["monitor"]["peak"]
            kinds = ("velocity", "acceleration", "jerk")
            used = ", ".join(f"{100 * (peak[kind] or 0):.0f}% of the {kind} limit" for kind in kinds)
            count = result["monitor"]["commands"]
            console.print(f"monitor     {result['violations']} violations in {count:,} commands; at most {used}")
        filtered = result["filter"]
        console.print(f"filter      {filtered['clamped']} targets clamped, refusals: {_listed(filtered['refusals'])}")
        if "recorded" in result:
            count, error = result["recorded_episodes"], result.get("record_error")
            console.print(f"recorded    {count} episodes in {result['recorded']}{f': {error}' if error else ''}")
            for why, many in Counter(result["not_recorded"]).items():
                console.print(f"            {many} left out: {why}")
        if "video" in result:
            console.print(f"video       {result['video'] or 'none'}{': ' * ('video_error' in result)}"
                          f"{result.get('video_error', '')}")  # fmt: skip


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} by {stage}" for stage, count in counts.items()) or "none"


def is_emulated(contract: AnyContract) -> bool:
    """True where emulators of drivers move the arms of a simulated station."""
    return any(arm.driver or arm.servos for arm in contract.arms.values())


def simulated_arm(task: str, seconds: float | None, dynamics: str) -> tuple[tuple[str, ...], Simulation]:
    """The components of the task's privileged vector, and the simulated arm for it, with episodes of `seconds` at most;
    None: as long as the task has them."""
    from robolearn.deploy import Simulation
    from robots import CONTROL_HZ
    from sim.tasks import TASKS

    made = look_up("task of the simulated arm", task, TASKS)()
    # Long enough for an episode whose time slips on a busy machine.
    limit_s = 10.0 + 5.0 * (made.max_episode_steps / CONTROL_HZ if seconds is None else seconds)
    module = ("robolearn.bench.emulators.node", *(() if seconds is None else (str(seconds),)))
    return tuple(made.observation_names), Simulation(task, module, limit_s, made.prompt, dynamics)
