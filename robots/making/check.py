"""The rules that the model of an arm has to keep, one by one, each compared with MuJoCo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

from robolearn.core.errors import BadInput
from robots.ik import solve
from robots.making.home import is_clear
from robots.shapes import read_pieces
from robots.spec import GripperKind, RobotSpec

POSTURES = 100
NEAR_LIMIT = 0.05  # least distance of home from the ends of the ranges [rad]
DOWN_RAD = 0.05  # largest angle of the tcp's z axis at home from the vertical
UNCARRIED = 0.01  # largest torque of gravity that is left on a joint at home, of its effort
STEP_RAD, STEP_S = 0.1, 0.5  # of each joint, and the time to follow it
GAP_M = 0.004  # largest error of the opening between the pads
REACHED_M = 1e-3
# Where the tcp goes in the embedded tasks, beside where it is at home [m].
AROUND = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.15, 0.0, 0.15) for z in (-0.25, -0.1, 0.05)])


@dataclass(frozen=True)
class RuleFinding:
    """One rule of the model.

    Attributes:
      rule: what has to hold.
      ok: whether it does.
      found: what was found.
    """

    rule: str
    ok: bool
    found: str


def check_model(robot: RobotSpec) -> list[RuleFinding]:
    """All rules of the model of `robot`, in order; a rule that cannot be looked at is broken."""
    try:
        model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    except ValueError as error:
        return [RuleFinding("MuJoCo compiles the model", False, str(error).splitlines()[0])]
    findings = []
    for rule, look in _RULES.items():
        try:
            faults = list(look(robot, model, mujoco.MjData(model)))
        except (BadInput, KeyError, ValueError) as error:
            faults = [" ".join(str(error).split())]
        findings.append(RuleFinding(rule, not faults, "; ".join(faults) or "yes"))
    return findings


def _joints(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    for name in robot.joints:
        joint = model.joint(name)
        if joint.type[0] != mujoco.mjtJoint.mjJNT_HINGE:
            yield f"{name} is no hinge"
        if not model.jnt_limited[joint.id]:
            yield f"{name} has no range"
    rest = {model.joint(i).name for i in range(model.njnt)} - {*robot.joints, *robot.gripper.joints}
    if rest:
        yield f"joints beside arm and gripper: {', '.join(sorted(rest))}"


def _kinematics(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    rng = np.random.default_rng(0)
    q = rng.uniform(robot.lower, robot.upper, (POSTURES, len(robot.joints)))
    pos, rot = robot.chain.forward(q)
    worst = 0.0
    for row, p, r in zip(q, pos, rot, strict=True):
        _place(robot, model, data, row)
        site = data.site(robot.tcp_site)
        worst = max(worst, float(np.abs(site.xpos - p).max()), float(np.abs(site.xmat.reshape(3, 3) - r).max()))
    if worst > 1e-9:
        yield f"they differ by {worst:.1g} from MuJoCo's"


def _home(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    home = np.array(robot.home)
    margin = np.minimum(home - robot.lower, robot.upper - home)
    if margin.min() < NEAR_LIMIT:
        yield f"{robot.joints[int(margin.argmin())]} is {margin.min():.2f} rad from the end of its range"
    _place(robot, model, data, home)
    z = data.site(robot.tcp_site).xmat.reshape(3, 3)[:, 2]
    if np.arccos(np.clip(-z[2], -1, 1)) > DOWN_RAD:
        yield f"the tcp's z axis points to ({', '.join(f'{x:.2f}' for x in z)}), not down"
    if not is_clear(model, data, robot.joints, home):
        yield "a link is below z = 0, or near another one"


def _gripper(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    gripper = robot.gripper
    if gripper.kind is not GripperKind.PARALLEL:
        yield f"{gripper.kind}: the embedded tasks take two fingers that slide"
        return
    for name in gripper.joints:
        joint = model.joint(name)
        if joint.type[0] != mujoco.mjtJoint.mjJNT_SLIDE:
            yield f"{name} is no slide"
        if not np.allclose(joint.range, (0.0, 0.5 * gripper.max_width), atol=1e-6):
            yield f"{name} slides from {joint.range[0]:g} to {joint.range[1]:g} m, not from 0 to half of max_width"
    fingers = [int(model.joint(name).bodyid[0]) for name in gripper.joints]
    for width in (0.0, 0.5 * gripper.max_width, gripper.max_width):
        _place(robot, model, data, np.array(robot.home), width)
        gap = min(
            mujoco.mj_geomDistance(model, data, int(a), int(b), 1.0, None)
            for a in np.flatnonzero(model.geom_bodyid == fingers[0])
            for b in np.flatnonzero(model.geom_bodyid == fingers[1])
        )
        if abs(max(gap, 0.0) - width) > GAP_M:
            yield f"{1e3 * gap:.0f} mm between the fingers at an opening of {1e3 * width:.0f} mm"
    tcp = data.site(robot.tcp_site)
    axis = data.joint(gripper.joints[0]).xaxis @ tcp.xmat.reshape(3, 3)
    if abs(axis[1]) < 0.99:
        yield "the fingers do not move along the tcp's y axis"
    middle = np.mean([data.xpos[body] for body in fingers], axis=0) - tcp.xpos
    if np.abs((middle @ tcp.xmat.reshape(3, 3))[:2]).max() > GAP_M:
        yield "the tcp is not in the middle between the fingers"


def _pads(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    for name in robot.gripper.joints:
        geoms = np.flatnonzero(model.geom_bodyid == int(model.joint(name).bodyid[0]))
        if not any(model.geom_condim[geom] >= 4 for geom in geoms):
            yield f"no geom of {name} has condim 4: what it holds turns in the grip"


def _camera(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    names = [model.camera(i).name for i in range(model.ncam)]
    if "wrist" not in names:
        yield f"cameras: {', '.join(names) or 'none'}"
    elif int(model.camera("wrist").bodyid[0]) == 0:
        yield "the camera wrist stands in the world, not on the arm"


def _servos(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    effort = dict(zip(robot.joints, robot.effort, strict=True))
    names = {model.actuator(i).name for i in range(model.nu)}
    for name in (*robot.joints, *robot.gripper.joints):
        if name not in names:
            yield f"no actuator {name}"
            continue
        one = model.actuator(name)
        if int(one.trnid[0]) != model.joint(name).id:
            yield f"actuator {name} moves another joint"
        if one.gainprm[0] <= 0 or one.biasprm[1] != -one.gainprm[0]:
            yield f"actuator {name} is no position servo"
        if name in effort and not np.isclose(one.forcerange[1], effort[name]):
            yield f"actuator {name} gives up to {one.forcerange[1]:g} Nm, the facts say {effort[name]:g}"


def _weight(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    _place(robot, model, data, np.array(robot.home))
    dofs = [int(model.joint(name).dofadr[0]) for name in robot.joints]
    left = np.abs(data.qfrc_bias - data.qfrc_gravcomp)[dofs]  # at rest qfrc_bias is gravity alone
    worst = int((left / robot.effort).argmax())
    if left[worst] > UNCARRIED * robot.effort[worst]:
        yield f"{left[worst]:.1f} Nm are left on {robot.joints[worst]}: gravcomp is not 1 on all links"


def _follows(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    home = np.array(robot.home)
    for i, name in enumerate(robot.joints):
        _place(robot, model, data, home)
        goal = home.copy()
        goal[i] += STEP_RAD if goal[i] + STEP_RAD < robot.upper[i] else -STEP_RAD
        _simulate(robot, model, data, goal, STEP_S)
        left = abs(_positions(robot, model, data)[i] - goal[i])
        if left > 0.1 * STEP_RAD:
            yield f"{name} is {left:.3f} rad short of a step of {STEP_RAD:g} rad after {STEP_S:g} s"


def _shapes(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    pieces = read_pieces(robot.mjcf, robot.joints)
    solid = sum(model.geom_type[g] != mujoco.mjtGeom.mjGEOM_PLANE for g in range(model.ngeom))
    if len(pieces) != solid:
        yield f"{len(pieces)} pieces of {solid} geoms"
    bare = [name for name in robot.joints[1:] if not _geoms_below(model, int(model.joint(name).bodyid[0]), robot)]
    if bare:
        yield f"no geom on the links of {', '.join(bare)}: the safety filter would not see them"
    far = max((float(np.abs(piece.points).max()) for piece in pieces), default=0.0)
    if far > 2.0:
        yield f"a piece {far:.1f} m large: are its meshes in millimetres?"


def _geoms_below(model: mujoco.MjModel, body: int, robot: RobotSpec) -> bool:
    """True where `body`, or one that is fixed to it, has a geom."""
    jointed = {int(model.joint(name).bodyid[0]) for name in robot.joints}
    fixed = {body}
    for other in range(body + 1, model.nbody):
        if int(model.body_parentid[other]) in fixed and other not in jointed:
            fixed.add(other)
    return bool(np.isin(model.geom_bodyid, list(fixed)).any())


def _reach(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[str]:
    q, goals = postures_around(robot)
    short = np.linalg.norm(robot.chain.forward(q)[0] - goals, axis=1)
    if (short > REACHED_M).any():
        worst = goals[int(short.argmax())]
        yield f"the tcp comes no nearer than {1e3 * short.max():.0f} mm to ({', '.join(f'{x:.2f}' for x in worst)}) m"


def postures_around(robot: RobotSpec) -> tuple[np.ndarray, np.ndarray]:
    """(m, n) postures [rad] that bring the tcp to places around home, and these (m, 3) [m]."""
    home = np.array(robot.home)
    p, r = robot.chain.forward(home[None])
    goals = p + AROUND
    q = np.tile(home, (len(goals), 1))
    for _ in range(20):
        q = solve(robot.chain, q, goals, np.tile(r, (len(goals), 1, 1)), rest=home, config=robot.ik)
    return q, goals


def _place(
    robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData, q: np.ndarray, width: float | None = None
) -> None:
    mujoco.mj_resetData(model, data)
    for name, value in zip(robot.joints, q, strict=True):
        data.joint(name).qpos[0] = value
    opening = robot.gripper.max_width if width is None else width
    if robot.gripper.joints:
        for name in robot.gripper.joints:
            data.joint(name).qpos[0] = robot.gripper.joint_of(np.array(opening))
    mujoco.mj_forward(model, data)


def _positions(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    return np.array([data.joint(name).qpos[0] for name in robot.joints])


def _simulate(robot: RobotSpec, model: mujoco.MjModel, data: mujoco.MjData, goal: np.ndarray, seconds: float) -> None:
    """Let the arm, at home, go to `goal` for some seconds; links meet nothing."""
    _place(robot, model, data, np.array(robot.home))
    for name, value in zip(robot.joints, goal, strict=True):
        data.actuator(name).ctrl[0] = value
    for name in robot.gripper.joints:
        data.actuator(name).ctrl[0] = robot.gripper.joint_of(np.array(robot.gripper.max_width))
    model.opt.timestep, model.opt.integrator = 0.002, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    for _ in range(round(seconds / model.opt.timestep)):
        mujoco.mj_step(model, data)


_RULES: dict[str, Callable[[RobotSpec, mujoco.MjModel, mujoco.MjData], Iterator[str]]] = {
    "the arm's joints are hinges with ranges, and there are no others": _joints,
    "its kinematics are MuJoCo's": _kinematics,
    "home is within the ranges, clear of table and links, with the tcp looking down": _home,
    "the gripper's fingers slide along y, and open as wide as max_width says": _gripper,
    "the pads hold": _pads,
    "a camera wrist is on the arm": _camera,
    "every joint has a position servo of its name, with the stated effort": _servos,
    "the weight of all links is carried": _weight,
    "the servos follow": _follows,
    "every link has a shape": _shapes,
    "the tcp reaches what lies around it": _reach,
}
