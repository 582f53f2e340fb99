"""Our lift in Isaac Lab, from its installation to a judged policy. Run by ``make test-isaaclab``; needs the network.

The environment is installed where it is not (8 GB, some minutes). Then the physics is judged: the hand stands where
MuJoCo has it at the same joint positions, a motion of 1 cm along x is one and ends where it ends in `lift`, and what
the script lifts is lifted. Then the script demonstrates, imitation learns from that, and the policy is judged on starts
of its own; with ``--rl`` it is fine-tuned and judged again. Exit code 0 where all is as it should be.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from run_command import robolearn

from robolearn.core.se3 import matrix_to_rotvec, quat_to_matrix
from robots import PANDA
from sim.adapters.isaaclab import pieces
from sim.bridge.far import serve
from sim.experts import make_expert
from sim.registry import FAMILIES, WorldConfig
from sim.tasks import TASKS

TASK, BODY = "isaaclab:lift", "panda_hand"
HAND_M, HAND_RAD = 1e-3, 1e-3  # most that the hand's pose may differ from MuJoCo's
ALONG_M = 2e-3  # and the tcp's after a motion
DEMONSTRATIONS, STEPS, LEAST = 100, 3000, 0.8  # least lower end of the success of imitation
RL_STEPS, RL_WORLDS, RL_LEAST = 40_000, 64, 0.9


def hand_differs() -> tuple[float, float]:
    """Largest differences from MuJoCo's forward kinematics [m], [rad], over 16 postures."""
    environment = FAMILIES["isaaclab"].environment
    assert environment is not None
    rng = np.random.default_rng(0)
    lower, upper = np.append(PANDA.lower, [0.0, 0.0]), np.append(PANDA.upper, [0.04, 0.04])
    q = rng.uniform(lower, upper, (16, 9))
    scene = pieces(PANDA, TASKS["lift"]()) | {"timestep": 0.005, "device": "cpu"}
    asked = {"far": str(Path(serve.__file__).parent), "scene": scene, "q": q.tolist(), "body": BODY}
    command = [str(environment.python), str(Path(__file__).with_name("isaac_hand.py"))]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True)
    found = np.array(json.loads(done.stdout.splitlines()[-1]))
    model = mujoco.MjModel.from_xml_path(str(PANDA.mjcf))
    data, far, turned = mujoco.MjData(model), 0.0, 0.0
    for posture, pose in zip(q, found, strict=True):
        for name, position in zip(scene["joints"], posture, strict=True):
            data.qpos[model.joint(name).qposadr[0]] = position
        mujoco.mj_kinematics(model, data)
        body = data.body(BODY)
        far = max(far, float(np.linalg.norm(body.xpos - pose[:3])))
        rot = quat_to_matrix(pose[None, [6, 3, 4, 5]])[0].T @ body.xmat.reshape(3, 3)
        turned = max(turned, float(np.linalg.norm(matrix_to_rotvec(rot[None]))))
    return far, turned


def ways() -> dict[str, float]:
    """A motion along x, its difference from that in `lift` from the same start, and the least height of lifted cubes
    [m]."""
    n = 8
    with closing(WorldConfig(TASK).build(n)) as env, closing(WorldConfig("lift").build(n)) as ours:
        push = np.zeros((n, 7), np.float32)
        push[:, 0], push[:, 6] = 0.5, 1.0  # 1 cm along x of the tcp
        tcps = []
        for worlds in (env, ours):
            first = worlds.reset(seed=3)[0]["proprio"]
            last = worlds.step(push)[0]
            for _ in range(4):  # the arm comes to rest
                last = worlds.step(push * np.array([0, 0, 0, 0, 0, 0, 1], np.float32))[0]
            tcps.append((first, last["proprio"]))
        start, after = tcps[0]
        along = np.sum((after - start)[:, 8:11] * start[:, 11:14], 1)
        apart = np.linalg.norm(after[:, 8:11] - tcps[1][1][:, 8:11], axis=1)
        seen, heights = env.reset(seed=4)[0], np.zeros(n)
        expert = make_expert(TASK, env.interface, n, "expert", 0)
        expert.reset(np.ones(n, bool))
        active = np.ones(n, bool)
        while active.any():
            seen, _, terminated, truncated, infos = env.step(expert.command(seen), active=active)
            ended = active & (terminated | truncated)
            heights[ended] = infos["final_obs"]["objects"][ended, 2]
            active &= ~ended
        return {"along_m": float(along.mean()), "apart_m": float(apart.max()), "raised_m": float(heights.min())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=100, help="of each evaluation")
    parser.add_argument("--worlds", type=int, default=50, help="side by side")
    parser.add_argument("--rl", action="store_true", help=f"fine-tune in {RL_STEPS} control steps, some 20 minutes")
    args = parser.parse_args()
    rows = {row["name"]: row for row in robolearn("worlds")["worlds"]}
    if rows["isaaclab"]["state"] != "installed":
        done = robolearn("worlds", "install", "isaaclab")
        print(f"installed, {done['bytes'] / 1e6:.0f} MB in {done['wall_s']['total']:.0f} s", flush=True)
    bad = []

    def judge(what: str, holds: bool) -> None:
        print(f"{'' if holds else 'NOT AS ASKED FOR: '}{what}", flush=True)
        bad.extend([] if holds else [what])

    far, turned = hand_differs()
    judge(f"hand within {1e3 * far:.4f} mm and {turned:.1e} rad of MuJoCo's", far < HAND_M and turned < HAND_RAD)
    found = ways()
    judge(f"1 cm along x moves the tcp {1e3 * found['along_m']:.1f} mm", 0.006 < found["along_m"] < 0.014)
    judge(f"as in `lift` within {1e3 * found['apart_m']:.2f} mm", found["apart_m"] < ALONG_M)
    judge(f"scripts raise each cube to {1e3 * found['raised_m']:.0f} mm", 0.08 < found["raised_m"] < 0.10)
    with tempfile.TemporaryDirectory() as folder:
        data, run, tuned = (Path(folder) / name for name in ("data", "run", "tuned"))
        world: tuple[Any, ...] = ("--task", TASK, "--worlds", args.worlds)
        made = robolearn("collect", *world, "--episodes", DEMONSTRATIONS, "--out", data)
        share, wall = made["expert_success"], made["wall_s"]["total"]
        judge(f"scripts solve {share:.1%} of {DEMONSTRATIONS}, in {wall:.0f} s", share > 0.95)
        trained = robolearn("train", "--data", data, "--steps", STEPS, "--out", run)
        judged = ("--seed", 1000, "--episodes", args.episodes)
        success = robolearn("evaluate", "--policy", run, *world, *judged)["success"]
        wall = trained["wall_s"]["total"]
        judge(f"imitation in {wall:.0f} s solves {said(success)}", success["low"] > LEAST)
        if args.rl:
            budget = ("--algo", "proposals", "--env-steps", RL_STEPS, "--data", data, "--worlds", RL_WORLDS)
            begun = time.perf_counter()
            robolearn("finetune", "--policy", run, "--task", TASK, *budget, "--out", tuned)
            wall = time.perf_counter() - begun
            success = robolearn("evaluate", "--policy", tuned, *world, *judged)["success"]
            judge(f"after RL in {wall:.0f} s it solves {said(success)}", success["rate"] > RL_LEAST)
    print(f"not as asked for: {'; '.join(bad) or 'none'}")
    return 1 if bad else 0


def said(success: dict[str, Any]) -> str:
    """A success rate with its interval."""
    return f"{success['rate']:.1%} ({success['low']:.1%} to {success['high']:.1%}) of {success['episodes']}"


if __name__ == "__main__":
    sys.exit(main())
