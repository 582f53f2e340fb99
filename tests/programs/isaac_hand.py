"""The pose of Isaac Lab's hand at joint positions that the test names; run by the interpreter of its environment.

On standard input there is JSON: the folder of `sim.bridge.far`, the arguments of its `open_scene`, and the positions.
The last line that is printed is JSON, the position [m] and the quaternion (xyzw) of the body for each of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys


def main() -> None:
    asked = json.load(sys.stdin)
    folder = asked["far"]
    spec = importlib.util.spec_from_file_location(
        "robolearn_far", f"{folder}/__init__.py", submodule_search_locations=[folder]
    )
    package = sys.modules["robolearn_far"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    import numpy as np
    from robolearn_far.isaaclab_scene import open_scene

    q = np.array(asked["q"], np.float32)
    scene = open_scene(len(q), **asked["scene"])
    rest = np.tile(np.float32([0.5, 0, 0.02, 1, 0, 0, 0]), (len(q), 1))
    scene.put(np.arange(len(q)), np.concatenate([q, rest], 1), np.zeros((len(q), q.shape[1] + 6), np.float32))
    robot = scene.robot
    pose = robot.data.body_link_pose_w.torch[:, robot.body_names.index(asked["body"])]
    print(json.dumps(pose.tolist()), flush=True)
    os._exit(0)


main()
