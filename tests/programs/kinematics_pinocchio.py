"""Kinematics of `robots.chain` beside pinocchio's (`pip install pin`): the same numbers, and what they cost.

    python tests/programs/kinematics_pinocchio.py

Prints the largest differences and the median time of poses with Jacobians, for one posture and for 128.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pinocchio as pin  # type: ignore[import-not-found]

from robots import ROBOTS

POSTURES, CALLS = 128, 300


def median_us(work: Callable[[], object]) -> float:
    """Median wall time of a call [µs]."""
    taken = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return 1e6 * float(np.median(taken))


def main() -> None:
    for name, robot in ROBOTS.items():
        chain, model, parent = robot.chain, pin.Model(), 0
        for i, axis in enumerate(chain.axis):
            joint = pin.JointModelRevoluteUnaligned(*map(float, axis))
            parent = model.addJoint(parent, joint, pin.SE3(chain.offset_rot[i], chain.offset_pos[i]), f"joint{i}")
        tcp = pin.Frame("tcp", parent, 0, pin.SE3(chain.tcp_rot, chain.tcp_pos), pin.FrameType.OP_FRAME)
        frame, data = model.addFrame(tcp), model.createData()
        q = np.random.default_rng(0).uniform(chain.lower, chain.upper, (POSTURES, chain.n))

        def theirs(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            jacobian = pin.computeFrameJacobian(model, data, q, frame, pin.LOCAL_WORLD_ALIGNED)  # noqa: B023
            return data.oMf[frame].translation, jacobian  # noqa: B023

        differences = [
            max(np.abs(pos - at).max(), np.abs(jac - theirs_jac).max())
            for pos, jac, (at, theirs_jac) in zip(chain.forward(q)[0], chain.jacobian(q), map(theirs, q), strict=True)
        ]
        one = median_us(lambda: chain.jacobian(q[:1])), median_us(lambda: theirs(q[0]))  # noqa: B023
        many = median_us(lambda: chain.jacobian(q)), median_us(lambda: [theirs(row) for row in q])  # noqa: B023
        print(f"{name}: differences up to {max(differences):.0e}; one posture {one[0]:.1f} µs, pinocchio {one[1]:.1f} "
              f"µs; {POSTURES} postures {many[0]:.0f} µs, pinocchio {many[1]:.0f} µs")  # fmt: skip


if __name__ == "__main__":
    main()
