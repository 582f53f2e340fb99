"""The nodes as programs: policy, streamer, safety, gripper for one that knows only actions, servos for an arm of them.

Parameters come the ROS way, `--ros-args -p contract:=sim -p policy:=runs/quickstart`, or as flags,
`--contract sim --policy runs/quickstart`. The simulated arm is a program of the
commands, as it alone needs `sim`.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hardware.node_parameters import NODES, parameter_names
from robolearn.core import BadInput, Policy, RobolearnError


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run the node `name`, one of `MAKERS`; the exit code."""
    return run_node(MAKERS[name], parameter_names(NODES[name]), argv)


def run_node(factory: Callable[[], Any], flags: Sequence[str], argv: Sequence[str] | None) -> int:
    """Spin the node that `factory` makes; `flags` are those of its parameters that are flags too."""
    try:
        from hardware.ros2.process import ros_arguments, spin

        return spin(factory, ros_arguments(sys.argv[1:] if argv is None else argv, flags))
    except RobolearnError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def leave(code: int) -> NoReturn:
    """End this process, whose node is closed, at once.

    The interpreter takes a second to take down what the node imported, and the process that ended it waits for that.
    """
    gc.collect()  # the middleware's handles: the shared memory that they hold outlives the process
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _policy_node() -> Any:
    from hardware.ros2.policy_node import PolicyNode

    return PolicyNode(load)


def load(
    path: str,
    device: str,
    words: str = "",
    backend: str = "torch",
    precision: str = "float32",
    goals: str = "",
    goal_choice: str = "nearest",
    denoise_steps: int = 0,
    guidance: float = -1.0,
) -> Policy:
    """The policy at `path`, on `device` (``auto``, ``cpu``, …), for one arm, told `words` and `goals`.

    Args:
      goals: as `policies.wrappers.goals.stored_goals` takes it; none for a policy without goals.
      denoise_steps, guidance: of the sampler; 0 and less than 0 for those that the policy was stored with.

    Raises:
      BadInput: there is no such policy, or it does not take what it is given.
    """
    if not path:
        expected = "a run, a checkpoint folder, FILE.onnx or lerobot:FOLDER"
        raise BadInput("parameter policy", got="nothing", expected=expected)
    import torch

    from policies.storage.backends import backend_device, check_backend
    from policies.storage.loading import open_policy
    from policies.wrappers.goals import stored_goals
    from policies.wrappers.prompted import set_goals, set_prompt

    torch.set_num_threads(1)  # a thread pool on two cores makes a small network slower, and joint states late
    check_backend(backend, precision)
    sampling = {"steps": denoise_steps or None, "guidance": guidance if guidance >= 0 else None}
    policy = open_policy(path, backend_device(backend, device), backend, precision, sampling)
    set_prompt(policy, words, what=f"policy {path}")
    set_goals(
        policy,
        (lambda interface: stored_goals(goals, interface, goal_choice)) if goals else None,
        what=f"policy {path}",
    )
    return policy


def _streamer_node() -> Any:
    from hardware.ros2.streamer_node import StreamerNode

    return StreamerNode()


def _safety_node() -> Any:
    from hardware.ros2.safety_node import SafetyNode

    return SafetyNode()


def _gripper_node() -> Any:
    from hardware.ros2.gripper_node import GripperNode

    return GripperNode()


def _servos_node() -> Any:
    from hardware.ros2.servos_node import ServosNode
    from hardware.servos.lerobot_bus import lerobot_bus

    return ServosNode(lerobot_bus)


MAKERS: dict[str, Callable[[], Any]] = {
    "policy": _policy_node,
    "streamer": _streamer_node,
    "safety": _safety_node,
    "gripper": _gripper_node,
    "servos": _servos_node,
}

if __name__ == "__main__":
    # `python -m robolearn.deploy.nodes safety --contract sim`: where the scripts are not installed.
    if len(sys.argv) < 2 or sys.argv[1] not in MAKERS:
        print(f"error: {BadInput('node', got=' '.join(sys.argv[1:2]) or 'nothing', available=MAKERS)}", file=sys.stderr)
        sys.exit(2)
    leave(main(sys.argv[1], sys.argv[2:]))
