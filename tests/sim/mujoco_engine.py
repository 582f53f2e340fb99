"""MuJoCo in the place of Isaac Lab, in another interpreter: it is given the same scene and returns the same numbers."""

from __future__ import annotations

import mujoco
import numpy as np
from robolearn_far.stepped import SteppedTask, facts  # type: ignore[import-not-found]


def build(task, count, arm, things, fixed, joints, timestep, device):
    """See `sim.bridge.far.isaaclab.build`; the device is the name of a fault."""
    if device == "cuda":
        raise SystemExit(1)
    return SteppedTask(Engine(count, arm, things, fixed, joints, timestep), facts(
        task, len(joints), len(things), 1 / timestep, "MuJoCo"), len(joints))  # fmt: skip


class Engine:
    def __init__(self, count, arm, things, fixed, joints, timestep):
        spec = mujoco.MjSpec.from_string(arm)
        for name, text in {"fixed": fixed, **things}.items():
            spec.attach(mujoco.MjSpec.from_string(text), prefix=f"{name}/", frame=spec.worldbody.add_frame())
        option = spec.option
        option.timestep, option.integrator = timestep, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.cone, option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 3.0
        self.model = m = spec.compile()
        self.data = [mujoco.MjData(m) for _ in range(count)]
        self.u = [m.actuator(name).id for name in joints]
        for name, (_, kp, kv, most) in joints.items():
            servo = m.actuator(name)
            assert (servo.gainprm[0], servo.biasprm[2], servo.forcerange[1]) == (kp, -kv, most)
        arms = [m.joint(name) for name in joints]
        free = [m.joint(f"{name}/{name}") for name in things]
        self.q = np.array([*(j.qposadr[0] for j in arms), *(j.qposadr[0] + i for j in free for i in range(7))])
        self.v = np.array([*(j.dofadr[0] for j in arms), *(j.dofadr[0] + i for j in free for i in range(6))])

    def put(self, worlds, qpos, qvel):
        for w, q, v in zip(worlds, qpos, qvel, strict=True):
            data = self.data[w]
            data.qpos[self.q], data.qvel[self.v] = q, v
            data.qacc_warmstart[:] = 0

    def step(self, control):
        for data, u in zip(self.data, control, strict=True):
            data.ctrl[self.u] = u
            mujoco.mj_step(self.model, data)

    def state(self):
        return (np.array([data.qpos[self.q] for data in self.data], np.float32),
                np.array([data.qvel[self.v] for data in self.data], np.float32))  # fmt: skip
