"""The nodes as programs: policy, streamer, safety, motion, gripper for one that takes only actions, servos for an arm
of them.

Parameters come the ROS way, `--ros-args -p contract:=sim -p policy:=runs/quickstart`, or as flags,
`--contract sim --policy runs/quickstart`. The simulated arm is a program of the
commands, as it alone needs `sim`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from hardware.execution.episode_end import EpisodeJudge
from hardware.node_parameters import NODES, PolicyParameters, parameter_names
from robolearn.core import BadInput, Interface, Policy, RobolearnError
from robolearn.core.machine import leave


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run the node `name`, one of `MAKERS`; the exit code."""
    make = MAKERS[name]
    return run_node(lambda: make(import_module(f"hardware.ros2.{name}_node")), parameter_names(NODES[name]), argv)


def run_node(factory: Callable[[], Any], flags: Sequence[str], argv: Sequence[str] | None) -> int:
    """Spin the node that `factory` makes; `flags` are those of its parameters that are flags too."""
    try:
        from hardware.ros2.process import ros_arguments, spin

        return spin(factory, ros_arguments(sys.argv[1:] if argv is None else argv, flags))
    except RobolearnError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def load(p: PolicyParameters) -> Policy:
    """The policy that the parameters name, for one arm, with its words and goals. Raises `BadInput`: there is no such
    policy, or it does not take what it is given."""
    if not p.policy:
        expected = "a run, a checkpoint folder, FILE.onnx, lerobot:FOLDER or episode:DATA#N"
        raise BadInput("parameter policy", got="nothing", expected=expected)
    import torch

    from policies.storage.backends import backend_device, check_backend
    from policies.storage.loading import open_policy
    from policies.wrappers.goals import stored_goals
    from policies.wrappers.prompted import set_goals, set_prompt
    from policies.wrappers.value_guided import ValueGuidedPolicy, load_guide
    from policies.wrappers.wrapper import at_tempo

    torch.set_num_threads(1)  # a thread pool on two cores makes a small network slower, and joint states late
    check_backend(p.backend, p.precision)
    sampling = {"steps": p.denoise_steps or None, "guidance": p.guidance if p.guidance >= 0 else None}
    device = backend_device(p.backend, p.device)
    one = not p.guide  # the samples of a guide share one encoding, which a recording would repeat
    policy = open_policy(p.policy, device, p.backend, p.precision, sampling, on_arm=one)
    set_prompt(policy, p.words, what=f"policy {p.policy}")
    goals = (lambda interface: stored_goals(p.goals, interface, p.goal_choice)) if p.goals else None
    set_goals(policy, goals, what=f"policy {p.policy}")
    if p.guide:
        guide = load_guide(p.guide, device, beside={"goals": p.goals})
        policy = ValueGuidedPolicy(policy, guide, p.guide_samples, p.guide_temperature)
        policy.set_prompt(p.words)
    return at_tempo(policy, p.tempo)


def judge(p: PolicyParameters, interface: Interface) -> EpisodeJudge | None:
    """The verdicts of the reward model that the parameters name, one each decision of a policy of this `interface`;
    None where they name none. Raises `BadInput`: there is no such model."""
    if not p.reward:
        return None
    from robolearn.rewards.choice import make_reward
    from robolearn.rewards.online import OnlineDone

    model = make_reward(p.reward, interface)
    if model is None:
        raise BadInput("parameter reward", got=p.reward, expected="a reward model")
    # A verdict that ends an episode has to last; one on a whole episode is that of a trial in simulated worlds.
    return OnlineDone([model], interface.control_hz, interface.control_hz, frames=3 if p.reward_ends else 1)


def _servos() -> Any:
    from hardware.servos.lerobot_bus import lerobot_bus

    return lerobot_bus


MAKERS: dict[str, Callable[[Any], Any]] = {
    "policy": lambda module: module.PolicyNode(load, judge),
    "streamer": lambda module: module.StreamerNode(),
    "safety": lambda module: module.SafetyNode(),
    "motion": lambda module: module.MotionNode(),
    "gripper": lambda module: module.GripperNode(),
    "servos": lambda module: module.ServosNode(_servos()),
}
"""Name → makes the node out of the module `hardware.ros2.<name>_node`, imported when it is started, as it needs ROS."""

if __name__ == "__main__":
    # `python -m robolearn.deploy.nodes safety --contract sim`: where the scripts are not installed.
    if len(sys.argv) < 2 or sys.argv[1] not in MAKERS:
        print(f"error: {BadInput('node', got=' '.join(sys.argv[1:2]) or 'nothing', available=MAKERS)}", file=sys.stderr)
        sys.exit(2)
    leave(main(sys.argv[1], sys.argv[2:]))
