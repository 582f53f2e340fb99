"""The episodes of a trial, one at a time: in a simulated world, or on an arm as `robolearn deploy` runs it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.cli.terminal_operator import TerminalOperator
from robolearn.cli.trial_hashes import world_of
from robolearn.cli.trial_starts import TrialStarts, camera_feed
from robolearn.core import BadInput, RobolearnError, Window, bind_policy
from robolearn.eval.trials.plan import TrialPlan, TrialSlot
from robolearn.rollout import Engine, Episodes, PolicyAgent
from robots.stations import load_any_contract

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ended:
    """The end of an episode: see `robolearn.eval.trials.records.TrialEpisode`."""

    outcome: str
    judged: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""


class TrialEpisodes(Protocol):
    """Runs the episodes of a plan."""

    def run(self, slot: TrialSlot) -> Ended:
        """The episode of `slot`; raises `RobolearnError` where it has no outcome."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


def episodes_of(plan: TrialPlan, station: Mapping[str, Any], folder: Path | None = None) -> TrialEpisodes:
    """The runner of the plan's episodes; `station`: flags of `robolearn deploy` that are not the plan's, `folder`: of
    the trial, where pictures of starts on a real arm are kept."""
    return ArmEpisodes(plan, station, folder) if plan.arm else WorldEpisodes(plan)


class WorldEpisodes:
    """Episodes in one simulated world."""

    def __init__(self, plan: TrialPlan) -> None:
        from policies.storage.loading import open_policy
        from policies.wrappers.prompted import set_goals, set_prompt
        from robolearn.rewards.choice import make_reward_model

        self._plan = plan
        self._policies = {
            (name, i): open_policy(one.path) for name, each in plan.policies.items() for i, one in enumerate(each)
        }
        world = world_of(plan.setting).matching(*(policy.interface for policy in self._policies.values()))
        self._env = world.build(1)
        for (name, i), policy in self._policies.items():
            what = f"policy {plan.policies[name][i].path}"
            bind_policy(policy, self._env.interface, what=f"{what} in {world.task}")
            set_prompt(policy, "", self._env.prompt, what=what)
            set_goals(policy, None, what=what)
        self._classifier = (
            make_reward_model(plan.classifier, self._env.interface, "cpu", "--reward") if plan.classifier else None
        )
        self._engine = Engine(self._env)

    def run(self, slot: TrialSlot) -> Ended:
        policy, engine = self._policies[slot.policy, slot.checkpoint], self._engine
        seen: list[dict[str, NDArray]] = []
        acted: list[NDArray] = []

        def watch(worlds: NDArray[np.intp], episode: NDArray[np.int64], observation: Mapping[str, NDArray]) -> None:
            seen.append({key: np.array(value[0]) for key, value in observation.items()})

        engine.reset(slot.start)
        policy.reset(slot.start)
        solved = truncated = False
        last: Mapping[str, NDArray] = {}
        agent = PolicyAgent(policy)
        for turn in engine.turns(agent, Episodes(np.array([1])), watch=watch if self._classifier else None):
            acted += [turn.decision.chunk[0, : turn.steps[0]]]
            solved, truncated, last = bool(turn.solved[0]), bool(turn.truncated[0]), turn.observation
        if not engine.success_reported and self._plan.outcome == "task":
            raise BadInput(
                f"task {self._env.task}", got="a world that reports no success", expected="--outcome classifier"
            )
        action = np.concatenate(acted)
        judged = {"task": solved} if engine.success_reported else {}
        if self._classifier is not None:
            seen.append({key: np.array(value[0]) for key, value in last.items()})
            judged["classifier"] = called_done(self._classifier, seen, action, self._env.prompt)
        seconds = len(action) / self._env.interface.control_hz
        success = judged[self._plan.outcome]
        return Ended("success" if success else "timeout" if truncated else "failure", judged, seconds)

    def close(self) -> None:
        self._env.close()


def called_done(model: Any, seen: list[dict[str, NDArray]], action: NDArray, prompt: str) -> bool:
    """True where the reward model calls a step of the episode done."""
    from robolearn.rewards.done import FIRST_SURE
    from robolearn.rewards.metrics import score_or_withhold

    window = Window({key: np.stack([frame[key] for frame in seen]) for key in seen[0]}, action)
    (score,) = score_or_withhold(model, [window], [prompt])
    return bool(FIRST_SURE.sure(score).any())


class TrialOperator(TerminalOperator):
    """The person beside a real arm, who is not told which policy acts.

    Args:
      starts: shows the start to be restored, and keeps new ones; None: nothing is to be seen.

    Attributes:
      start: the start of the next episode, in words.
      block, first: its block, and true where it is the first of it.
      helped: the last episode was judged as one in which the person helped.
    """

    def __init__(self, yes: bool, starts: TrialStarts | None = None) -> None:
        super().__init__(yes)
        self.start, self.helped, self._moved = "", False, False
        self.block, self.first, self.starts = 0, True, starts

    def confirm_motion(self, robot: str) -> bool:
        print(self.start, file=sys.stderr, flush=True)
        with nullcontext() if self.starts is None else self.starts.restoring(self.start, self.block, self.first):
            if self._moved:
                self.restore_scene()
            else:
                self._moved = super().confirm_motion(robot)
        return self._moved

    def confirm_success(self) -> bool:
        self.helped = False
        while True:
            print("Did it succeed? y: yes, n: no, i: only with your help: ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            answer = line.strip().lower()[:1]
            if answer in ("y", "n", "i"):
                self.helped = answer == "i"
                return answer == "y"
            if not line:
                raise RobolearnError("the episode was not judged: the terminal is closed")


def is_first(plan: TrialPlan, slot: TrialSlot) -> bool:
    """True where an episode begins its block."""
    return slot.number % len(plan.policies) == 0


def start_of(plan: TrialPlan, slot: TrialSlot) -> str:
    """The start of an episode, for the person who puts things in their places."""
    new = is_first(plan, slot)
    where = "a new start: place things anew, and remember where" if new else "the same start as the one before"
    return f"Episode {slot.number + 1} of at most {plan.episodes}, block {slot.block + 1}: {where}."


class ArmEpisodes:
    """Episodes on an arm: nodes, safety filter and person as in `robolearn deploy`, anew for each episode; the plan's
    launch file starts the nodes, where it has one."""

    def __init__(self, plan: TrialPlan, station: Mapping[str, Any], folder: Path | None = None) -> None:
        from policies.storage.loading import check_policy, needed_by, open_foreign
        from robolearn.deploy.launched import arguments_of
        from robolearn.rewards.choice import make_reward_model

        contract = load_any_contract(plan.arm)
        self._plan, self._station = plan, station
        self._real = not (contract.simulated or plan.setting["rehearse"])
        for one in (one for each in plan.policies.values() for one in each):
            opened = open_foreign(one.path)  # once: its weights are read for that
            needed = needed_by(one.path, opened=opened)
            seen = contract.with_picture_sizes(needed.observation)
            what = f"policy {one.path} on {contract.name}"
            check_policy(one.path, seen.interface, what=what, simulated=not self._real, opened=opened)
            if plan.classifier:  # it sees what the policy sees
                make_reward_model(plan.classifier, needed, "cpu", "--reward")
        if file := plan.setting.get("launch"):
            arguments_of(Path(file))
        self._operator = TrialOperator(bool(station.get("yes")))
        if self._real and contract.cameras and folder is not None:
            feed = partial(camera_feed, contract, bool(station.get("enclaves")))
            self._operator.starts = TrialStarts(folder, feed)

    def run(self, slot: TrialSlot) -> Ended:
        from robolearn.cli.deploy import Deploy
        from robolearn.deploy.deployment import INTERRUPTED
        from robolearn.deploy.processes import NodeDied
        from robolearn.deploy.session import SafetyStopped

        path = self._plan.policies[slot.policy][slot.checkpoint].path
        self._operator.start = start_of(self._plan, slot)
        self._operator.block, self._operator.first = slot.block, is_first(self._plan, slot)
        logs = self._station.get("logs")
        own = {**self._plan.setting, **self._station, "logs": logs and logs / f"episode-{slot.number + 1}"}
        file = self._plan.setting.get("launch")
        own |= {"reward": self._plan.classifier, "seed": slot.start, "launch": Path(file) if file else None}
        command = Deploy(policy=Path(path), robot=self._plan.arm, episodes=1, json=True, **own)
        try:
            result = command.run_beside(self._operator)
        except SafetyStopped as error:
            return Ended("refused", reason=str(error))
        except NodeDied as error:
            return Ended("died", reason=str(error))
        seconds = result["episode_s"][0]
        if result["ended"] == INTERRUPTED:
            raise KeyboardInterrupt
        if result["stopped"]:
            return Ended("stopped", seconds=seconds, reason=result["ended"])
        beside = "person" if self._real else "task"
        judged = {beside: result["success"]["rate"] == 1.0}
        if self._plan.classifier and (called := result["called_done"][0]) is not None:
            judged["classifier"] = called
        if self._real and self._operator.helped:  # whichever counts: not by the policy alone
            return Ended("intervention", judged, seconds)
        counts = "classifier" if self._plan.outcome == "classifier" else beside
        if counts not in judged:
            raise RobolearnError("the episode was not judged: no verdict of the reward model")
        if judged[counts]:
            return Ended("success", judged, seconds)
        return Ended("timeout" if result["timed_out"][0] else "failure", judged, seconds)

    def close(self) -> None:
        """No node runs between two episodes; the page of starts does."""
        if self._operator.starts is not None:
            self._operator.starts.close()
