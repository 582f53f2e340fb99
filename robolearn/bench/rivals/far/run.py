"""The process of a rival's code: imitate, fine-tune, and answer with actions where it is judged.

Its one argument is a file of JSON: see `robolearn.bench.rivals.process.Job`. The agents are those that their configs
name; what a config says is kept but for what the job sets, and for the length of the run.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
import traceback
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .channel import Channel
from .repairs import repair
from .worlds import TheirWorlds

RATIO = "initial_ratio_error_threshold"  # an agent's check that the first ratio is 1
RATIO_ERROR = 1e-3  # that a repaired one is held to


def main() -> None:
    """The process. Its arguments: descriptors to read from and to write to, and the job's file."""
    channel, job = Channel(int(sys.argv[1]), int(sys.argv[2])), json.loads(Path(sys.argv[3]).read_text())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        run(channel, job)
    except EOFError:
        sys.exit(1)  # nobody is there any more
    except Exception as error:
        traceback.print_exc()  # first: our process ends this one when it has read the message
        channel.send("failed", why=said(error))
        sys.exit(1)


def run(channel: Channel, job: dict[str, Any]) -> None:
    """Do the job."""
    os.chdir(job["checkout"])
    sys.path.insert(0, job["checkout"])
    worlds: list[TheirWorlds] = []

    def make_async(name: str, num_envs: int = 1, **options: Any) -> TheirWorlds:
        worlds.append(TheirWorlds(channel, num_envs))
        return worlds[-1]

    sys.modules["wandb"] = types.ModuleType("wandb")  # the configs switch it off; nothing is sent anywhere
    makers: Any = import_module("env.gym_utils")
    makers.make_async = make_async  # before the agents take it from there
    resolvers()
    base, imitation_s = imitate(job)
    config, length = fine_tuning(job, base)
    on_agent = repair(job["repairs"], worlds)
    agent = import_module("hydra.utils").get_class(config._target_)(config)
    for made in on_agent:
        made(agent)
    begin_with_a_reset(agent)
    if hasattr(agent, RATIO):  # which its published tolerance, below what float32 carries, ends at the first update
        setattr(agent, RATIO, RATIO_ERROR if job["repairs"] else math.inf)
    answer(channel, agent, phase="imitation", seconds=imitation_s, **length)
    begun, stopped = time.perf_counter(), ""
    try:
        agent.run()
    except EOFError:
        raise
    except Exception as error:  # its own checks may end it: it is then judged as it stands
        traceback.print_exc()
        stopped = said(error)
    answer(channel, agent, phase="tuned", seconds=time.perf_counter() - begun, stopped=stopped, **length)


def resolvers() -> None:
    """The resolvers of the configs, as their launchers have them, and that of the time by hydra."""
    conf = import_module("omegaconf").OmegaConf
    known = {"eval": eval, "round_up": math.ceil, "round_down": math.floor, "now": lambda form: time.strftime(form)}
    for name, function in known.items():
        conf.register_new_resolver(name, function, replace=True)


def loaded(job: dict[str, Any], part: str, **changed: Any) -> Any:
    """The config of a part of the job, resolved, with what the job sets in it, and then `changed`."""
    conf = import_module("omegaconf").OmegaConf
    config = conf.load(job[part]["config"])
    for key in ("defaults", "hydra"):
        config.pop(key, None)
    for key, value in {**job[part]["set"], **{name.replace("__", "."): one for name, one in changed.items()}}.items():
        conf.update(config, key, value, force_add=True)
    conf.resolve(config)
    return config


def imitate(job: dict[str, Any]) -> tuple[str, float]:
    """The checkpoint of imitation by their code, and its seconds: at least as many gradient steps as asked for, and a
    whole cycle of the published learning rate. Its average of the weights begins late and moves slowly: with less it
    is no policy yet.
    """
    config = loaded(job, "imitation")
    lengths = np.load(job["data"])["traj_lengths"]
    windows = int(np.maximum(lengths - config.horizon_steps + 1, 0).sum())
    if not windows:
        raise ValueError(f"no demonstration is as long as a chunk of {config.horizon_steps} actions")
    batch = min(config.train.batch_size, windows)
    cycle = config.train.lr_scheduler.first_cycle_steps  # epochs
    epochs = max(math.ceil(job["train_steps"] / (windows // batch)), cycle)
    found, taken = (Path(job["base"]) / name for name in (f"checkpoint/state_{epochs}.pt", f"seconds_{epochs}.json"))
    if not taken.exists():
        begun = time.perf_counter()
        config = loaded(job, "imitation", train__batch_size=batch, train__n_epochs=epochs)
        import_module("hydra.utils").get_class(config._target_)(config).run()
        taken.write_text(json.dumps(time.perf_counter() - begun))
    return str(found), json.loads(taken.read_text())


def fine_tuning(job: dict[str, Any], base: str) -> tuple[Any, dict[str, int]]:
    """The config of fine-tuning, and its length: as many iterations as the budget pays for.

    Where it pays for fewer than `least_iterations`, rollouts are shorter than their config has them; down to one whole
    episode where the config resets worlds as a rollout begins. A warm-up of the learning rates ends before the
    training.
    """
    config = loaded(job, "tuning")
    worlds, execute, budget = config.env.n_envs, config.act_steps, job["env_steps"]
    resets = config.env.get("reset_at_iteration", True)
    least = max(1, math.ceil(job["episode"] / execute)) if resets else 1  # a world may have no limit
    steps = min(config.train.n_steps, max(least, budget // (worlds * execute * job["least_iterations"])))
    iterations = budget // (worlds * execute * steps)
    if iterations < 2:
        cost = 2 * worlds * execute * steps
        raise ValueError(f"{budget} control steps do not pay for two iterations, {cost}")
    changed = {"base_policy_path": base, "train__n_train_itr": iterations, "train__n_steps": steps}
    changed["train__logprob_batch_size"] = worlds * max(1, 10_000 // worlds)
    for kind in ("actor", "critic"):
        scheduler = f"{kind}_lr_scheduler"
        changed[f"train__{scheduler}__warmup_steps"] = min(config.train[scheduler].warmup_steps, iterations - 1)
    config = loaded(job, "tuning", **changed)
    return config, {"iterations": iterations, "worlds": worlds, "chunks": steps, "execute": execute}


def begin_with_a_reset(agent: Any) -> None:
    """Reset the worlds of an agent once that does not where a rollout begins: it leaves this to its first evaluation,
    which is switched off."""
    if getattr(agent, "reset_at_iteration", True):
        return
    reset = agent.reset_env_all

    def once(*words: Any, **named: Any) -> Any:
        agent.reset_at_iteration, agent.reset_env_all = False, reset
        return reset(*words, **named)

    agent.reset_at_iteration, agent.reset_env_all = True, once


def answer(channel: Channel, agent: Any, **facts: Any) -> None:
    """Act without noise for who judges the agent's policy, until it has seen enough."""
    torch = import_module("torch")
    channel.send("ready", **facts)
    agent.model.eval()
    while True:
        kind, values = channel.receive()
        if kind == "go on":
            return
        if kind == "seed":
            torch.manual_seed(values["seed"])
            continue
        with torch.no_grad():
            cond = {"state": torch.as_tensor(values["state"][:, None], dtype=torch.float32, device=agent.device)}
            if hasattr(agent.model, "get_actions"):  # a flow
                chunk = agent.model.get_actions(cond, eval_mode=True, ret_logprob=False)
            else:
                chunk = agent.model(cond=cond, deterministic=True, return_chain=True).trajectories
        channel.send("chunk", actions=chunk[:, : agent.act_steps].cpu().numpy().astype(np.float32))


def said(error: BaseException) -> str:
    """An error in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _end_with_parent() -> None:
    """End when the standard input does: our process has ended, however."""
    sys.stdin.buffer.read()
    os._exit(1)
