"""Evaluations with a progress bar: beside a training, of what it exports at the end, and under pushes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.cli.suite import build_worlds
from robolearn.core import BadInput
from robolearn.presets import WORLDS
from robolearn.runs import Progress, Run
from robolearn.runs.command import rate_text
from robolearn.runs.loop import BEST, Kept, PolicyScore
from sim.registry import WorldConfig, tasks_of

ON_THE_WAY = 500_000  # seeds of the starts by which the best is chosen: neither training's nor an evaluation's
AT_THE_END = 1000  # and those of the evaluation that is reported, as `robolearn evaluate` has them


def side_by_side(tasks: int, episodes: int) -> int:
    """Number of worlds for so many `episodes`, a multiple of `tasks`: where those are several, each world runs as many,
    so that they count alike."""
    if tasks == 1:
        return min(WORLDS, episodes)
    each = episodes // tasks
    return tasks * max(k for k in range(1, each + 1) if each % k == 0 and (k == 1 or tasks * k <= WORLDS))


class Evaluator:
    """Evaluates policies of one task in worlds of its own, which are made when they are needed.

    Args:
      world: of the training.
      episodes: of each evaluation.
      seed: of the training.
      quiet: without a progress bar.
    """

    def __init__(self, world: WorldConfig, episodes: int, seed: int, quiet: bool) -> None:
        self.world, self.episodes, self.seed, self.quiet = world, episodes, seed, quiet
        self._env: Any = None
        self._stack = ExitStack()

    def close(self) -> None:
        """Let the worlds go."""
        self._stack.close()

    def __call__(self, folder: Path) -> PolicyScore:
        """Score of the policy in `folder` on the starts that choose."""
        from robolearn.eval import evaluate

        policy, env = self._ready(folder)
        done = evaluate(env, policy, self.episodes, (ON_THE_WAY + self.seed) % 2**32)
        if done.success_reported:
            return PolicyScore("success", done.success.rate, done.success.low, done.success.high)
        mean = done.mean_return
        return PolicyScore("return", mean.mean, mean.low, mean.high)

    def at_the_end(self, folder: Path, name: str) -> dict[str, Any]:
        """``{"success", "return", "seed"}`` of the policy in `folder`, on the starts that are reported."""
        policy, env = self._ready(folder)
        seed = (AT_THE_END + self.seed) % 2**32
        done = evaluate_policy(env, policy, self.episodes, seed, self.quiet, name).to_json()
        return {"success": done["success"], "return": done["return"], "seed": seed}

    def outcomes(self, run: Run, kept: Kept) -> dict[str, Any]:
        """``{"evaluation": …}`` of what `run` exported, and ``"best"`` where one was chosen on the way."""
        found: dict[str, Any] = {"evaluation": self.at_the_end(run.policy_dir, "the policy")}
        if kept.best_at:
            best = run.path / BEST
            chosen = self.at_the_end(best, "the best on the way")
            found["best"] = {"policy": str(best), "iteration": kept.best_at, **chosen}
        return found

    def _ready(self, folder: Path) -> tuple[Any, Any]:
        import torch

        from policies.storage.loading import open_policy
        from policies.wrappers.prompted import PromptedPolicy

        with torch.random.fork_rng(devices=[]):  # the training's random numbers are none of ours
            policy = open_policy(folder)
        if isinstance(policy, PromptedPolicy):  # the worlds say the words
            policy = policy.policy
        if self._env is None:
            world = self.world.matching(policy.interface)
            count = side_by_side(len(tasks_of(world.task)), self.episodes)
            self._env = build_worlds(world, policy.interface, count)
            self._stack.callback(self._env.close)
        return policy, self._env


def show_outcomes(result: Mapping[str, Any], console: Any, heading: str) -> None:
    """A line for each evaluation in the `result` of a training."""
    for key, what in (("evaluation", "of the policy"), ("best", "of the best on the way")):
        if found := result.get(key):
            value = rate_text(found["success"]) if found["success"] else f"return {found['return']['mean']:.4g}"
            where = f" (iteration {found['iteration']}, {found['policy']})" if key == "best" else ""
            console.print(f"{heading}{value} {what}, without noise, on starts of their own{where}")


def evaluate_policy(
    env: Any, policy: Any, episodes: int, seed: int, quiet: bool, name: str = "", record: Any = None
) -> Any:
    """One evaluation with a progress bar; `record` takes its episodes."""
    from robolearn.eval import evaluate

    with Progress(f"evaluating {name}".strip(), total=episodes, unit="episodes", quiet=quiet) as progress:
        told = lambda done, _: progress(done)  # noqa: E731
        return evaluate(env, policy, episodes, seed, progress=told, record=record)


def check_push(force: float) -> None:
    """Raise `BadInput` for a force of --push that no world takes."""
    from sim.embedded.pushes import STRONGEST

    if not 0.0 <= force <= STRONGEST:
        raise BadInput("--push", got=f"{force:g}", expected=f"a force from 0 to {STRONGEST:g} N")


def pushed_outcomes(env: Any, policy: Any, force: float, on: str, episodes: int, seed: int, quiet: bool) -> dict:
    """``{"force_n", "on", "each", "worst"}``: success of `policy` under pushes of `force` [N] to four sides, each
    early and late; the interval of the worst allows for its being the worst (`least_of`).

    Args:
      env: `sim.embedded.pushes.PushedWorlds`; without pushes again afterwards.
      episodes, seed: of each push.
    """
    from robolearn.eval import least_of
    from sim.embedded.pushes import MOMENTS, PUSHES

    each, found = [], []
    for k, push in enumerate(PUSHES):
        degrees = round(math.degrees(push.direction))
        if degrees % 90 or push.moment not in MOMENTS[1::2]:
            continue
        env.push(np.eye(len(PUSHES))[k], force)
        step = round(push.moment * env.max_episode_steps)
        done = evaluate_policy(env, policy, episodes, seed, quiet, f"pushed to {degrees} degrees at step {step}")
        found.append(done.success)
        each.append({"direction_deg": degrees, "step": step, "success": done.success.to_json()})
    env.push(np.zeros(len(PUSHES)), 0.0)
    worst = min(each, key=lambda one: one["success"]["rate"]) | {"success": least_of(found).to_json()}
    return {"force_n": force, "on": on, "each": each, "worst": worst}


def show_pushes(row: Mapping[str, Any], console: Any) -> None:
    """A line of the worst of the pushes of `row`, if there were any."""
    if found := row.get("pushes"):
        worst, on = found["worst"], f"{found['force_n']:g} N on the {found['on']}"
        console.print(
            f"{row['policy']}: pushed by {on}, the worst of {len(found['each'])}: {rate_text(worst['success'])} to "
            f"{worst['direction_deg']} degrees at step {worst['step']}; without a push {rate_text(row['success'])}"
        )
