"""``robolearn hub push`` and ``pull``: policies and data sets to and from a hub of Hugging Face's protocol.

Beside the files a page (card) is pushed: content, measured success with its command, and use. The lines between ``---``
are the hub's own metadata (YAML), written by a YAML library because their values come from files and arguments.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
import yaml

from robolearn.core import BadInput
from robolearn.core.switches import Seed, Within
from robolearn.io.json_files import read_json
from robolearn.runs.command import Command, rate_text
from robolearn.runs.run import CONFIG, is_run


@dataclass(frozen=True, kw_only=True)
class HubPush(Command):
    """Push a policy or a data set to a hub of Hugging Face's protocol, with a page that says what was measured.

    A policy's success is measured now, by `robolearn evaluate`, and stands on its page with that command. A data set
    gets the tag by which LeRobot opens it, and checksums of its files as they are. What was there under that name
    before is replaced. The token is that of HF_TOKEN or of `hf auth login`, the address HF_ENDPOINT.

    Example: robolearn hub push runs/rl me/lift-panda
    """

    what: tyro.conf.Positional[Path]
    """A run folder, a checkpoint folder, or a data set."""
    repo: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="OWNER/NAME")]
    """OWNER/NAME there."""
    task: str = ""
    """World in which a policy is measured; by default the task of its run."""
    episodes: Annotated[int, Within(0)] = 400
    """Episodes by which a policy is measured; 0: none, and the page says so."""
    seed: Seed = 1000
    """Of their starts."""
    private: bool = False
    """Make a new repository that only you see."""

    def run(self) -> dict[str, Any]:
        """``{"repo", "kind", "url", "files", "bytes", "measured"}``."""
        from robolearn.cli.hub.remote import check_name, content_of, open_hub, push, with_checksums

        check_name(self.repo)
        hub = open_hub(write=True)  # before an evaluation that would be in vain
        content = content_of(self.what)
        measured = None
        if content.kind == "dataset":
            from robolearn.cli.dataset.inspection import DatasetInfo

            content = with_checksums(self.what, content)
            card = dataset_card(self.repo, DatasetInfo(data=self.what).run())
        else:
            measured = self._measure() if self.episodes else None
            card = policy_card(self.repo, read_json(content.files["config.json"], what=f"policy {self.what}"), measured)
        url = push(hub, self.repo, content, card, private=self.private, message="Pushed by robolearn")
        told = {"repo": self.repo, "kind": content.kind, "url": url, "measured": measured}
        return {**told, "files": len(content.files) + len(content.made) + 1, "bytes": content.bytes}

    def _measure(self) -> dict[str, Any]:
        from robolearn.cli.evaluate import Evaluate
        from sim.registry import WorldConfig

        task = self.task or _task_of(self.what)
        if not task:
            expected = "--task, or --episodes 0 to measure nothing"
            raise BadInput(f"hub push: {self.what}", got="a policy whose task is not stored", expected=expected)
        done = Evaluate(
            policy=self.what, world=WorldConfig(task), episodes=self.episodes, seed=self.seed, json=self.json
        ).run()
        if done["success"] is None:
            expected = "a task that does, or --episodes 0"
            raise BadInput(f"hub push: task {task}", got="a world that reports no success", expected=expected)
        name = f"policies/{self.repo.split('/')[1]}"
        words = ["robolearn", "evaluate", "--policy", name, "--task", task, "--episodes", self.episodes]
        words += ["--seed", done["seed"]]
        return {"task": task, "seed": done["seed"], "success": done["success"], "command": shlex.join(map(str, words))}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from robolearn.cli.dataset.common import megabytes

        console.print(f"pushed      {result['files']} files, {megabytes(result['bytes'])}, to {result['url']}")
        if result["measured"]:
            console.print(f"success     {rate_text(result['measured']['success'])} in {result['measured']['task']}")
        console.print(f"next        robolearn hub pull {result['repo']} --out …")


def _task_of(path: Path) -> str:
    """The task that a run was trained or evaluated in; nothing where none is stored."""
    run = path if is_run(path) else path.parent
    if not is_run(run):
        return ""
    config = read_json(run / CONFIG, what=f"run {run}")
    return str(config.get("task") or config.get("eval_task") or "")


@dataclass(frozen=True, kw_only=True)
class HubPull(Command):
    """Bring a policy or a data set of ours from a hub into a folder, where every other command takes it.

    Nothing that is unpickled when it is read is brought. What comes is opened once before the folder gets its name: the
    weights of a policy, the tables of a data set, and its videos, whose frames are counted against the episodes.

    Example: robolearn hub pull me/lift-panda --out policies/lift-panda
    """

    repo: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="OWNER/NAME")]
    """OWNER/NAME there."""
    out: Path
    """A new folder."""
    kind: Literal["", "model", "dataset"] = ""
    """Kind to take if a policy and a data set have the same name."""
    revision: str = ""
    """A branch, tag or commit; by default the newest."""
    max_gb: float = 200.0
    """Bring no more than this [GB]."""

    def run(self) -> dict[str, Any]:
        """``{"repo", "kind", "out", "files", "bytes"}``."""
        from robolearn.cli.hub.remote import PULLED, check_name, content_of, kind_of, open_hub, pull

        check_name(self.repo)
        if not self.max_gb > 0:
            raise BadInput("--max-gb", got=self.max_gb, expected="more than 0")
        if self.out.exists():
            raise BadInput(f"--out {self.out}", got="something that is there already", expected="a new folder")
        hub = open_hub(write=False)
        kind = self.kind or kind_of(hub, self.repo)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.out.parent, prefix=f".{self.out.name}.") as place:
            folder = Path(place) / "pulled"
            pull(hub, self.repo, kind, PULLED, self.revision, folder, self.max_gb)
            shutil.rmtree(folder / ".cache", ignore_errors=True)  # of the library's, not of the repository
            try:
                content = content_of(folder)
            except BadInput as error:
                reason = str(error).replace(str(folder), self.repo)
                raise BadInput(f"hub pull {self.repo}: no policy or data set of robolearn: {reason}") from None
            folder.rename(self.out)
        files = [self.out / name for name in content.files]
        size = sum(file.stat().st_size for file in files)
        return {"repo": self.repo, "kind": content.kind, "out": str(self.out), "files": len(files), "bytes": size}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from robolearn.cli.dataset.common import megabytes

        console.print(f"pulled      {result['files']} files, {megabytes(result['bytes'])}, to {result['out']}")
        flag = "train --data" if result["kind"] == "dataset" else "evaluate --policy"
        console.print(f"next        robolearn {flag} {result['out']} …")


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
        name, value = f"success, %, of {success['episodes']} episodes", round(100 * success["rate"], 2)
        result = {
            "task": {"type": "robotics", "name": measured["task"]},
            "dataset": {"type": "simulation", "name": f"{measured['task']} on {arm}"},
            "metrics": [{"type": "success_rate", "name": name, "value": value}],
        }
        own["model-index"] = [{"name": repo.split("/")[1], "results": [result]}]
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
