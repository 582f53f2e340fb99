"""``robolearn evaluate --paired-with``: the episodes of deployments once more in simulation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.core import BadInput
from robolearn.runs.command import print_table, rate_text

if TYPE_CHECKING:
    from robolearn.cli.evaluate import Evaluate

ALONE = ("against", "goals", "guide", "shuffle", "out", "words")  # flags of one or two policies


def read_deployment(folder: Path) -> dict[str, Any]:
    """The result of the deployment whose --logs were `folder`. Raises `BadInput`: none, or without outcomes."""
    from robolearn.io.json_files import read_json

    path = folder / "result.json"
    result = read_json(path, what=f"--paired-with {folder}")
    for key, expected in (("policy", "a policy"), ("succeeded", "an outcome for each episode")):
        if not result.get(key):
            raise BadInput(f"--paired-with {path}", got=f"no {key}", expected=f"{expected}, as robolearn deploy writes")
    return result


def run_paired(command: Evaluate) -> dict[str, Any]:
    """The result of `command`: its policy, which one of the deployments ran, and those of the others."""
    from policies.storage.backends import backend_device
    from policies.storage.loading import open_policy
    from policies.wrappers.prompted import set_prompt
    from robolearn.cli.evaluate import evaluate_policy
    from robolearn.core import bind_policy
    from robolearn.eval.paired import Paired, prediction

    defaults = {option.name: option.default for option in fields(command)}
    for name in ALONE:
        if getattr(command, name) != defaults[name]:
            raise BadInput("--paired-with", got=f"with --{name}", expected="one of them")
    logs = [read_deployment(folder) for folder in command.paired_with]
    names = [Path(log["policy"]).resolve() for log in logs]
    if command.policy.resolve() not in names:
        raise BadInput("--policy", got=command.policy, available=[log["policy"] for log in logs],
                       expected="a policy that one of the deployments ran")  # fmt: skip
    if len(set(names)) < len(names):
        raise BadInput("--paired-with", got="two deployments of one policy", expected="another policy each")
    for folder, log in zip(command.paired_with, logs, strict=True):
        if log.get("task") not in (None, command.world.task):
            raise BadInput(f"--paired-with {folder}", got=f"task {log['task']}", expected=command.world.task)
    begun, found = time.perf_counter(), []
    device = backend_device(command.backend, command.device)
    for log in logs:
        policy = open_policy(Path(log["policy"]), device)
        world = command.world.matching(policy.interface)
        outcomes = []
        # The simulated arm is world 0: one world meets its episodes, in their order.
        for worlds, episodes, seed in (
            (1, len(log["succeeded"]), log.get("seed", command.seed)),
            (min(command.worlds, command.episodes), command.episodes, command.seed),
        ):
            with closing(world.build(worlds)) as env:
                bind_policy(policy, env.interface, what=f"policy {log['policy']} in {world.task}")
                set_prompt(policy, "", env.prompt, what=f"policy {log['policy']}")
                done = evaluate_policy(env, policy, episodes, seed, command.json, log["policy"])
            if not done.success_reported:
                raise BadInput("--paired-with", got=f"{world.task}, which reports no success", expected="one that does")
            outcomes.append(done.succeeded.tolist())
        found.append(Paired(log["policy"], log["succeeded"], *outcomes))
    result = {"task": command.world.task, "seed": command.seed, "dynamics": command.world.dynamics}
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
