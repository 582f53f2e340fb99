"""One run of a rival's code, from our side: its process, the world that it learns in, and the judge.

Control steps and successes are counted here, by the world; states and actions are scaled to [-1, 1] by the least and
the greatest value among the demonstrations, as both codebases have it:

    s' = 2 (s − s_min) / (s_max − s_min + 10⁻⁶) − 1          a = (a' + 1) / 2 · (a_max − a_min) + a_min
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.bench.baselines import judged
from robolearn.bench.rivals import far
from robolearn.bench.rivals.checkouts import Checkout, CodeFailed
from robolearn.bench.rivals.far.channel import Channel
from robolearn.core import ActionChunk, Env, Interface, Observation, Policy
from robolearn.core.specs import is_image
from robolearn.data import Dataset
from robolearn.io.json_files import write_json
from robolearn.rollout.engine import execute
from sim.child import Child
from sim.registry import WorldConfig

LEAST_ITERATIONS = 20  # that a budget is spread over, where the published rollouts are longer
JOB, DATA, OUTPUT = "job.json", "train.npz", "output.txt"
BOOT = """
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.util
spec = importlib.util.spec_from_file_location("robolearn_rival", {init!r}, submodule_search_locations=[{folder!r}])
package = sys.modules["robolearn_rival"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from robolearn_rival.run import main
main()
"""


@dataclass(frozen=True)
class Job:
    """One run of a checkout.

    Attributes:
      repaired: with the repairs of the codebase, or as published.
      demonstrations: data set that its imitation learns from.
      out: folder for what it writes.
      base: folder of the imitation, which runs that differ in their repairs share.
      train_steps: gradient steps of imitation.
      env_steps: budget in control steps.
      eval_episodes: of each evaluation, from the starts of `judge_seed`.
    """

    checkout: Checkout
    repaired: bool
    world: WorldConfig
    demonstrations: Path
    out: Path
    base: Path
    seed: int
    train_steps: int
    env_steps: int
    eval_episodes: int
    judge_seed: int
    judge_worlds: int
    device: str


class DemoScale:
    """States and actions as a rival's code has them."""

    def __init__(self, dataset: Dataset) -> None:
        self.keys = [key for key, spec in dataset.interface.observation.items() if not is_image(spec)]
        states, actions = self.joined(dataset.observation), np.asarray(dataset.action, np.float32)
        self.low, self.high = states.min(0), states.max(0)
        self.least, self.most = actions.min(0), actions.max(0)
        span = np.where(self.most > self.least, self.most - self.least, 1.0)
        # Their launchers scale demonstrations before; an action that never changes stands in the middle.
        self.data = {"states": self.states(dataset.observation), "traj_lengths": np.asarray(dataset.lengths)}
        self.data["actions"] = np.where(self.most > self.least, 2 * (actions - self.least) / span - 1, 0.0)

    def joined(self, observation: Mapping[str, NDArray]) -> NDArray[np.float32]:
        """(N, Do) all vectors of an observation, one after the other."""
        return np.concatenate([np.asarray(observation[key], np.float32) for key in self.keys], axis=-1)

    def states(self, observation: Mapping[str, NDArray]) -> NDArray[np.float32]:
        """(N, Do) scaled."""
        return (2 * (self.joined(observation) - self.low) / (self.high - self.low + 1e-6) - 1).astype(np.float32)

    def actions(self, scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions (…, Da) of the world, within its bounds."""
        if not np.isfinite(scaled).all():
            raise CodeFailed("its actions are NaN or infinite")
        return np.clip((scaled + 1) / 2 * (self.most - self.least) + self.least, -1, 1).astype(np.float32)


class Theirs(Policy):
    """The policy in a rival's process, without noise."""

    def __init__(self, channel: Channel, scale: DemoScale, interface: Interface, execute_steps: int) -> None:
        self.interface, self.execute_steps = interface, execute_steps
        self._channel, self._scale = channel, scale

    def reset(self, seed: int) -> None:
        self._channel.send("seed", seed=seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """It has no memory."""

    def act(self, observation: Observation) -> ActionChunk:
        self._channel.send("act", state=self._scale.states(observation))
        return self._scale.actions(_expected(self._channel, "chunk")["actions"])


class LearningWorld:
    """The worlds that a rival learns in, and their own account.

    Attributes:
      env_steps: control steps that were executed.
      episodes, successes: that ended, and were solved.
    """

    def __init__(self, world: WorldConfig, scale: DemoScale, seed: int) -> None:
        self._world, self._scale, self._seed = world, scale, seed
        self._env: Env | None = None
        self.env_steps = self.episodes = self.successes = 0

    def close(self) -> None:
        """Close the worlds, where there are any."""
        if self._env is not None:
            self._env.close()

    def reset(self, worlds: int) -> dict[str, NDArray]:
        """The states that new episodes of so many worlds begin with."""
        first = self._env is None
        if self._env is None:
            self._env = self._world.build(worlds)
        observation, _ = self._env.reset(seed=self._seed if first else None)
        self._observation, self._solved = observation, np.zeros(worlds, np.bool_)
        return {"state": self._scale.states(observation)}

    def step(self, actions: NDArray[np.float32]) -> dict[str, NDArray]:
        """Execute chunks (N, Ta, Da), scaled; an episode that ends leaves the rest of its chunk."""
        assert self._env is not None
        worlds = np.ones(len(actions), np.bool_)
        done = execute(self._env, self._scale.actions(actions), worlds, self._observation, None)
        ended = done.terminated | done.truncated
        self._observation = done.observation
        self._solved |= np.zeros_like(worlds) if done.success is None else done.success
        self.env_steps += int(done.steps.sum())
        self.episodes += int(ended.sum())
        self.successes += int(self._solved[ended].sum())
        self._solved &= ~ended
        state = self._scale.states(done.observation)
        final = self._scale.states(done.final) if ended.any() else state
        reward = done.rewards.sum(axis=1).astype(np.float64)
        return {"state": state, "reward": reward, "terminated": done.terminated, "truncated": done.truncated,
                "final": final}  # fmt: skip


def run_job(job: Job) -> dict[str, Any]:
    """Imitate and fine-tune by a rival's code, and judge both policies in our world.

    Returns:
      ``imitation`` and ``success``, ``env_steps``, ``episodes`` and ``successes`` of the rollouts, ``length`` of the
      training, ``seconds`` of each part, ``repairs``, and ``stopped``: why its code ended itself, or empty.

    Raises:
      CodeFailed: its process ended, or failed before it could be judged.
    """
    dataset = Dataset.open(job.demonstrations)
    scale = DemoScale(dataset)
    for folder in (job.out, job.base):
        folder.mkdir(parents=True, exist_ok=True)
    np.savez(job.out / DATA, **scale.data)
    with closing(job.world.build(1)) as env:
        limit = env.max_episode_steps
    write_json(job.out / JOB, _told(job, dataset, scale, limit))
    theirs, requests = os.pipe()
    answers, ours = os.pipe()
    folder = Path(far.__file__).parent
    boot = BOOT.format(init=str(folder / "__init__.py"), folder=str(folder))
    words = [job.checkout.python, "-u", "-c", boot, str(theirs), str(ours), str(job.out / JOB)]
    learning = LearningWorld(job.world, scale, job.seed)
    with (job.out / OUTPUT).open("w") as output, closing(learning):
        given = (theirs, ours)
        child = Child(words, job.checkout.environment(job.out), stdout=output, stderr=subprocess.STDOUT, pass_fds=given)
        for end in given:
            os.close(end)
        channel = Channel(answers, requests)
        try:
            found: dict[str, Any] = {"repairs": list(job.checkout.codebase.repairs) if job.repaired else []}
            for phase in ("imitation", "tuned"):
                facts = _until_ready(channel, learning)
                policy = Theirs(channel, scale, dataset.interface, facts["execute"])
                rate = judged(job.world, policy, job.eval_episodes, job.judge_seed, job.judge_worlds)["success"]
                found |= {"imitation": rate} if phase == "imitation" else {"success": rate}
                found.setdefault("seconds", {})[phase] = facts["seconds"]
                channel.send("go on")
            length = {name: facts[name] for name in ("iterations", "worlds", "chunks", "execute")}
            counts = {name: getattr(learning, name) for name in ("env_steps", "episodes", "successes")}
            return found | counts | {"length": length, "stopped": facts["stopped"]}
        except (EOFError, OSError) as error:
            last = (job.out / OUTPUT).read_text(errors="replace").strip().splitlines()
            why = last[-1] if last else "it said nothing"
            raise CodeFailed(f"the code of {job.checkout.name} {child.ending()}: {why}") from error
        finally:
            channel.close()
            child.close()


def _until_ready(channel: Channel, learning: LearningWorld) -> dict[str, Any]:
    """Serve the world until the policy is to be judged; the facts that come with it."""
    while True:
        kind, values = channel.receive()
        if kind == "ready":
            return values
        if kind == "failed":
            raise CodeFailed(f"its code failed: {values['why']}")
        done = learning.reset(values["worlds"]) if kind == "reset" else learning.step(values["actions"])
        channel.send("done", **done)


def _expected(channel: Channel, wanted: str) -> dict[str, Any]:
    """The values of the next message, of this kind."""
    kind, values = channel.receive()
    if kind == "failed":
        raise CodeFailed(f"its code failed: {values['why']}")
    assert kind == wanted
    return values


def _told(job: Job, dataset: Dataset, scale: DemoScale, limit: int) -> dict[str, Any]:
    """The job as its process reads it."""
    code, path = job.checkout.codebase, job.checkout.path
    same = {
        "obs_dim": int(scale.low.shape[0]),
        "action_dim": int(dataset.action.shape[1]),
        "cond_steps": 1,
        "seed": job.seed,
        "device": job.device,
        "wandb": None,
    }
    imitation = same | {
        "env": "robolearn",
        "logdir": str(job.base),
        "train_dataset_path": str(job.out / DATA),
        "test_in_mujoco": False,
        "train.save_model_freq": 10**9,  # its last is saved anyway
        # Where this reads "cpu", both load batches by workers, which hand them to a GPU.
        "train_dataset.device": "cpu:0" if job.device == "cpu" else job.device,
    }
    tuning = same | {
        "env_name": "robolearn",
        "logdir": str(job.out / "tuning"),
        "env.max_episode_steps": limit,
        "env.best_reward_threshold_for_success": 1,
        "env.save_video": False,
        "train.val_freq": 10**9,  # judged by us, outside of the budget
        "train.force_train": True,
        "train.save_model_freq": 10**9,
    }
    return {
        "checkout": str(path),
        "base": str(job.base),
        "data": str(job.out / DATA),
        "train_steps": job.train_steps,
        "env_steps": job.env_steps,
        "episode": limit,
        "least_iterations": LEAST_ITERATIONS,
        "repairs": list(code.repairs) if job.repaired else [],
        "imitation": {"config": str(path / job.checkout.imitation), "set": imitation},
        "tuning": {
            "config": str(path / job.checkout.tuning),
            "set": tuning | (code.repaired if job.repaired else {}),
        },
    }
