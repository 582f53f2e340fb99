"""``robolearn evaluate --paired-with``: the episodes of deployments once more in simulation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from robolearn.core import BadInput
from robolearn.runs.command import MOST_SEED, print_table, rate_text
from sim.registry import WorldConfig


def read_deployment(folder: Path) -> dict[str, Any]:
    """The result of the deployment whose --logs were `folder`. Raises `BadInput`: none, a dry run, without outcomes or
    seed, or of another arm than its policy is for."""
    from policies.storage.loading import needed_by
    from robolearn.io.json_files import read_json

    path = folder / "result.json"
    result = read_json(path, what=f"--paired-with {folder}")
    what, policy, arm = f"--paired-with {path}", result.get("policy"), _arm(result)
    if result.get("dry_run"):
        raise BadInput(what, got="a dry run, in which the arm does not move", expected="a deployment without --dry-run")
    if not isinstance(policy, str) or not policy:
        raise BadInput(what, got=f"no policy ({policy!r})", expected="a policy, as robolearn deploy writes")
    succeeded, seed = result.get("succeeded"), result.get("seed")
    if not isinstance(succeeded, list) or not succeeded or not all(isinstance(one, bool) for one in succeeded):
        got = "no succeeded" if not succeeded else f"succeeded {str(succeeded)[:60]}"
        raise BadInput(what, got=got, expected="true or false for each episode, as robolearn deploy writes")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST_SEED:
        got = "no seed" if seed is None else f"seed {seed!r}"
        raise BadInput(what, got=got, expected="the seed of its starts, as robolearn deploy writes")
    if arm and arm != (needed := needed_by(policy).embodiment):
        raise BadInput(what, got=f"a deployment on {arm}", expected=f"on {needed}, as its policy {policy} is for")
    return result


def _arm(log: Mapping[str, Any]) -> str:
    """The arm of a deployment; empty where it is not known."""
    from robots.stations import contract_names, load_contract

    known = log.get("robot") in contract_names()  # a log that names its station alone
    return log.get("arm") or (load_contract(log["robot"]).interface.embodiment if known else "")


def run_paired(
    policy_path: Path,
    folders: Sequence[Path],
    world: WorldConfig,
    worlds: int,
    episodes: int,
    seed: int,
    *,
    device: str,
    quiet: bool,
) -> dict[str, Any]:
    """The result of the policy at `policy_path`, which one of the deployments ran, and those of the others."""
    from policies.storage.loading import open_policy
    from policies.wrappers.prompted import set_prompt
    from robolearn.cli.evaluator import evaluate_policy
    from robolearn.core import bind_policy
    from robolearn.eval.paired import Paired, prediction

    logs = [read_deployment(folder) for folder in folders]
    names = [Path(log["policy"]).resolve() for log in logs]
    if policy_path.resolve() not in names:
        raise BadInput("--policy", got=policy_path, available=[log["policy"] for log in logs],
                       expected="a policy that one of the deployments ran")  # fmt: skip
    if len(set(names)) < len(names):
        raise BadInput("--paired-with", got="two deployments of one policy", expected="another policy each")
    for folder, log in zip(folders, logs, strict=True):
        if log.get("task") not in (None, world.task):
            raise BadInput(f"--paired-with {folder}", got=f"task {log['task']}", expected=world.task)
    begun, found = time.perf_counter(), []
    for log in logs:
        policy = open_policy(Path(log["policy"]), device)
        matching = world.matching(policy.interface)
        outcomes = []
        # The simulated arm is world 0: one world meets its episodes, in their order.
        for side_by_side, count, start in (
            (1, len(log["succeeded"]), log["seed"]),
            (min(worlds, episodes), episodes, seed),
        ):
            with closing(matching.build(side_by_side)) as env:
                bind_policy(policy, env.interface, what=f"policy {log['policy']} in {world.task}")
                set_prompt(policy, "", env.prompt, what=f"policy {log['policy']}")
                done = evaluate_policy(env, policy, count, start, quiet, log["policy"])
            if not done.success_reported:
                raise BadInput("--paired-with", got=f"{world.task}, which reports no success", expected="one that does")
            outcomes.append(done.succeeded.tolist())
        found.append(Paired(log["policy"], log["succeeded"], *outcomes))
    result = {"task": world.task, "seed": seed, "dynamics": world.dynamics}
    return result | {"paired": prediction(found), "wall_s": {"total": time.perf_counter() - begun}}


def show_paired(result: Mapping[str, Any], console: Any) -> None:
    """A line for each policy, and the sentence."""
    heads = ("policy", "on the arm", "in simulation", "equal outcomes", "on the arm, by both")
    rows = [
        (row["policy"], rate_text(row["real"]), rate_text(row["simulated"]), f"{row['agreement']:.0%}",
         rate_text(row["powered"]))
        for row in result["paired"]["policies"]
    ]  # fmt: skip
    print_table(console, heads, rows, title=f"{result['task']}, dynamics {result['dynamics']}")
    console.print(result["paired"]["sentence"])
