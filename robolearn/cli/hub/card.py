"""The page of a policy or a data set on a hub: what it is, what was measured and by which command, how it is used.

The lines between ``---`` are the hub's own (YAML): by them it finds, lists and shows. What stands there comes from
files and arguments, so it is written by a YAML library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from robolearn.runs.command import rate_text


def policy_card(repo: str, config: Mapping[str, Any], measured: Mapping[str, Any] | None) -> str:
    """The page of a policy.

    Args:
      repo: ``OWNER/NAME``.
      config: its ``config.json``.
      measured: ``{"task", "seed", "success": {"rate", …}}`` of an evaluation, with ``"command"``; None for none.
    """
    interface = config["interface"]
    arm, kind = interface["embodiment"], config["kind"]
    own: dict[str, Any] = {
        "library_name": "robolearn",
        "pipeline_tag": "robotics",
        "tags": ["robolearn", "robotics", kind, arm],
    }
    if measured:
        success = measured["success"]
        metric = {"type": "success_rate", "name": f"success, %, of {success['episodes']} episodes"}
        own["model-index"] = [
            {
                "name": repo.split("/")[1],
                "results": [
                    {
                        "task": {"type": "robotics", "name": measured["task"]},
                        "dataset": {"type": "simulation", "name": f"{measured['task']} on {arm}"},
                        "metrics": [metric | {"value": round(100 * success["rate"], 2)}],
                    }
                ],
            }
        ]
    privileged = [key for key, spec in interface["observation"].items() if spec.get("privileged")]
    only = f" It sees {', '.join(privileged)}, which only a simulated world has." if privileged else ""
    seen = ", ".join(f"`{key}`" for key in interface["observation"])
    lines = [
        f"A {kind} policy for the arm `{arm}`: actions are `{interface['action_kind']}` at "
        f"{interface['control_hz']:g} Hz, observations {seen}.{only}",
        "",
        "## Success",
        "",
        *_success(measured),
        "",
        "## Use",
        "",
        "```sh",
        f"robolearn hub pull {repo} --out policies/{repo.split('/')[1]}",
        f"robolearn evaluate --policy policies/{repo.split('/')[1]}"
        + (f" --task {measured['task']}" if measured else ""),
        "```",
    ]
    return _page(repo, own, lines)


def _success(measured: Mapping[str, Any] | None) -> list[str]:
    if not measured:
        return ["Not measured."]
    return [
        f"{rate_text(measured['success'])} in `{measured['task']}`, with a 95% interval, starts of seed "
        f"{measured['seed']}, measured when it was pushed, by",
        "",
        "```sh",
        measured["command"],
        "```",
    ]


def dataset_card(repo: str, info: Mapping[str, Any]) -> str:
    """The page of a data set, from what `robolearn dataset info` says of it."""
    own = {
        "task_categories": ["robotics"],
        "tags": ["LeRobot", "robolearn", info["robot"]],
        "configs": [{"config_name": "default", "data_files": "data/*/*.parquet"}],
    }
    seen = [*(f"`{key}`" for key in info["observation"]), *(f"camera `{key}`" for key in info["cameras"])]
    solved = "" if info["successes"] is None else f", {info['successes']} of them successful"
    lines = [
        f"LeRobotDataset {info['format']}: {info['episodes']} episodes{solved}, {info['frames']:,} frames at "
        f"{info['control_hz']:g} Hz of the arm `{info['robot']}`.",
        "",
        f"- observations: {', '.join(seen)}",
        f"- actions: `{info['action']['kind']}`, {info['action']['size']} numbers",
        *(f"- task: {' '.join(task.split())} ({count} episodes)" for task, count in info["tasks"].items()),
        "",
        "Counted by `robolearn dataset info`.",
        "",
        "```sh",
        f"robolearn hub pull {repo} --out data/{repo.split('/')[1]}",
        f"robolearn train --data data/{repo.split('/')[1]} --out runs/bc",
        "```",
    ]
    return _page(repo, own, lines)


def _page(repo: str, own: Mapping[str, Any], lines: list[str]) -> str:
    head = yaml.safe_dump(dict(own), sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n# {repo.split('/')[1]}\n\n" + "\n".join(lines) + "\n"
