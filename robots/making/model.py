"""The model of a robot folder: the arm of a source, its two fingers or a gripper of ours, servos, wrist camera, tcp.

Every joint has a position servo that answers as a mass on a spring of ω = 80 rad/s with ζ = 0.7:

    k_p = M_jj ω²,   k_d = 2 ζ ω M_jj,   M_jj the inertia about the joint at home, its motor's included

The weight of all links is carried (gravcomp), as real servos do. Every other joint, actuator, camera and site of the
source is left out, with what hangs on it.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import mujoco
import numpy as np

from robolearn.core.errors import BadInput
from robolearn.io.atomic import write_text
from robots.chain import Array
from robots.making.source import SourceModel, path_to
from robots.own import MODEL

ARMATURE = 0.1  # inertia of a motor behind its gear [kg m²]
OMEGA, ZETA = 80.0, 0.7  # of a servo
FULL_TURN = 2.0 * math.pi  # range of a joint that has none [rad]
TCP = 0.15  # before the tip [m]
PADS = {"condim": 4, "friction": [0.5, 0.01, 0.0001], "solref": [0.01, 1.0], "solimp": [0.95, 0.99, 0.001, 0.5, 2.0]}
_BOX, _CYLINDER = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
CAMERA = [0.075, 0.0, 0.02]  # the wrist camera, in the frame of the tip [m]
CAMERA_QUAT = np.array([0.12209, 0.696487, 0.696487, 0.12209])  # it looks at what the fingers hold
DARK = [0.16, 0.17, 0.19, 1.0]


def strip(source: SourceModel, fingers: tuple[str, ...] = (), site: str = "") -> list[str]:
    """Leave nothing of the source but the arm's links and joints, and those of the `fingers` with the `site` between
    them; what was left out, in words."""
    spec, out, joints = source.spec, [], (*source.joints, *fingers)
    for kind in (
        "actuators",
        "sensors",
        "keys",
        "equalities",
        "tendons",
        "excludes",
        "pairs",
        "cameras",
        "lights",
        "sites",
    ):
        for one in list(getattr(spec, kind)):
            if kind != "sites" or one.name != site:
                spec.delete(one)
    arm = {spec.joint(name).parent.name for name in joints}
    kept = {body.name for name in arm for body in path_to(spec.body(name))}
    kept |= {body.name for body in path_to(spec.body(source.tip))}
    while odd := [b for b in spec.bodies[1:] if b.name not in kept and not _fixed_to(b, kept)]:
        out.append(f"body {odd[0].name} and what hangs on it")
        spec.delete(odd[0])
    for joint in list(spec.joints):
        if joint.name not in joints:
            out.append(f"joint {joint.name}, which is fixed at 0")
            spec.delete(joint)
    for body in spec.bodies[1:]:
        collide = [geom for geom in body.geoms if geom.contype or geom.conaffinity]
        for geom in [geom for geom in body.geoms if geom not in collide] if collide else []:
            spec.delete(geom)  # drawn alone, where others of the body both collide and are drawn
    for geom in spec.geoms:
        if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
            spec.delete(geom)
            continue
        if geom.material:
            geom.rgba, geom.material = spec.material(geom.material).rgba, ""
        geom.group = 2
    for kind in ("materials", "textures"):
        for one in list(getattr(spec, kind)):
            spec.delete(one)
    return out


def _fixed_to(body: mujoco.MjsBody, kept: set[str]) -> bool:
    """True where no joint lies between `body` and a body that is kept: a cover, a plate."""
    while body.name not in kept and body.name != "world":
        if body.joints:
            return False
        body = body.parent
    return True


def mount_gripper(source: SourceModel, name: str, width: float) -> tuple[str, str]:
    """Put two fingers that slide, a wrist camera and the site ``tcp`` before the tip; names of the fingers' joints.

    The tip's z axis points away from the arm, and the fingers move along its y axis.
    """
    hand = source.spec.body(source.tip).add_body(name=f"{name}_hand")
    _weigh(hand, 0.9, [0, 0, 0.05], [0.0012, 0.0013, 0.0007])
    hand.add_geom(name=f"{name}_plate", type=_CYLINDER, fromto=[0, 0, 0, 0, 0, 0.014], size=[0.0375, 0, 0], rgba=DARK,
                  group=2)  # fmt: skip
    hand.add_geom(name=f"{name}_palm", type=_BOX, pos=[0, 0, 0.052], size=[0.024, 0.042, 0.040], rgba=DARK, group=2)
    hand.add_site(name="tcp", pos=[0, 0, TCP], size=[0.004] * 3, group=4)
    hand.add_camera(name="wrist", pos=CAMERA, quat=CAMERA_QUAT, fovy=70)
    fingers = []
    for side, sign in (("left", 1), ("right", -1)):
        finger = hand.add_body(name=f"{name}_finger_{side}", pos=[0, 0, 0.092])
        _weigh(finger, 0.05, [0, 0.015 * sign, 0.03], [1.5e-5, 1.5e-5, 4e-6])
        finger.add_joint(name=finger.name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, sign, 0], range=[0, width / 2],
                         limited=1, damping=[5.0, 0.0, 0.0])  # fmt: skip
        finger.add_geom(type=_BOX, pos=[0, 0.018 * sign, 0.022], size=[0.011, 0.008, 0.024], rgba=DARK, group=2)
        finger.add_geom(name=f"{name}_pad_{side}", type=_BOX, pos=[0, 0.007 * sign, 0.053], size=[0.011, 0.007, 0.017],
                        rgba=DARK, group=2, **PADS)  # fmt: skip
        fingers.append(finger.name)
    return fingers[0], fingers[1]


def own_gripper(source: SourceModel, site: str) -> tuple[tuple[str, str], float]:
    """The source's own gripper: joints of its fingers, opening [m]; `site`, which may be a body, is its tcp.

    Raises:
      BadInput: there is no such site on the arm, or not two slides from 0 to the same place behind the last joint.
    """
    spec = source.spec
    last = spec.joint(source.joints[-1]).parent.name
    if spec.site(site) is None and (body := spec.body(site)) is not None:
        body.add_site(name=site)
    found = spec.site(site)
    if found is None or last not in {body.name for body in path_to(found.parent)}:
        available = [one.name for one in spec.sites if last in {body.name for body in path_to(one.parent)}]
        raise BadInput("--tcp-site", got=site, expected="a site or body behind the last joint", available=available)
    slides = [
        joint for joint in spec.joints
        if joint.type == mujoco.mjtJoint.mjJNT_SLIDE and last in {body.name for body in path_to(joint.parent)}
    ]  # fmt: skip
    ranges = {(round(float(joint.range[0]), 6), round(float(joint.range[1]), 6)) for joint in slides}
    if len(slides) != 2 or len(ranges) != 1 or next(iter(ranges))[0] != 0.0:
        got = (
            ", ".join(f"{joint.name} from {joint.range[0]:g} to {joint.range[1]:g} m" for joint in slides) or "no slide"
        )
        raise BadInput("--tcp-site: the model's gripper", got=got, expected="two slides from 0 to the same place",
                       hint="Without --tcp-site a gripper of ours is mounted on --tip")  # fmt: skip
    return (slides[0].name, slides[1].name), 2.0 * next(iter(ranges))[1]


def keep_gripper(source: SourceModel, fingers: tuple[str, str], site: str) -> None:
    """Let the pads of the model's own gripper hold; mount a wrist camera, as far from its tcp as from that of ours."""
    for name in fingers:
        for geom in source.spec.joint(name).parent.geoms:
            geom.condim = PADS["condim"]
    tcp = source.spec.site(site)
    turned, quat = np.empty(3), np.empty(4)
    mujoco.mju_rotVecQuat(turned, np.array(CAMERA) - [0, 0, TCP], np.array(tcp.quat))
    mujoco.mju_mulQuat(quat, np.array(tcp.quat), CAMERA_QUAT)
    tcp.parent.add_camera(name="wrist", pos=np.array(tcp.pos) + turned, quat=quat, fovy=70)


def _weigh(body: mujoco.MjsBody, mass: float, centre: list[float], inertia: list[float]) -> None:
    body.mass, body.ipos, body.inertia, body.explicitinertial = mass, centre, inertia, True


def add_servos(source: SourceModel, effort: dict[str, float], fingers: tuple[str, str], home: Array) -> None:
    """Give every joint a position servo, and let all links carry their own weight."""
    spec = source.spec
    for body in spec.bodies[1:]:
        body.gravcomp = 1.0
    inertia = _inertia(spec, source.joints, home)
    for name, m in zip(source.joints, inertia, strict=True):
        # The damping is the servo's, within its force: that of the joint would hold it back at speed.
        spec.joint(name).damping, spec.joint(name).frictionloss = np.zeros(3), 0.0
        _servo(spec, name, m * OMEGA**2, 2 * ZETA * OMEGA * m, effort[name])
    for name in fingers:
        _servo(spec, name, 800.0, 20.0, 60.0)


def _servo(spec: mujoco.MjSpec, joint: str, kp: float, kv: float, force: float) -> None:
    actuator = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    actuator.set_to_position(kp=kp, kv=kv)
    actuator.forcerange, actuator.forcelimited = [-force, force], 1


def _inertia(spec: mujoco.MjSpec, joints: tuple[str, ...], home: Array) -> list[float]:
    """M_jj of each joint at `home` [kg m²]."""
    model = spec.copy().compile()
    data = mujoco.MjData(model)
    for name, q in zip(joints, home, strict=True):
        data.qpos[model.joint(name).qposadr[0]] = q
    mujoco.mj_forward(model, data)
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    dof = [int(model.joint(name).dofadr[0]) for name in joints]
    return [float(full[i, i]) for i in dof]


def prepare_joints(source: SourceModel) -> list[str]:
    """Give each joint of the arm a range and a motor's inertia; those that had no range."""
    free = []
    for name in source.joints:
        joint = source.spec.joint(name)
        joint.armature = max(ARMATURE, float(joint.armature))
        if joint.range[1] <= joint.range[0]:
            joint.range, joint.limited = [-FULL_TURN, FULL_TURN], 1
            free.append(name)
    return free


def write_model(source: SourceModel, folder: Path) -> Path:
    """Write ``model.xml`` and its meshes into `folder`; returns its path.

    Raises:
      BadInput: the model does not compile.
    """
    spec, folder = source.spec, folder.absolute()  # MuJoCo looks for a relative mesh beside the source
    (folder / "meshes").mkdir(parents=True, exist_ok=True)
    for mesh in spec.meshes:
        if mesh.file:
            file = Path(mesh.file)
            if file.parent != folder / "meshes":
                shutil.copy(file, folder / "meshes" / file.name)
            mesh.file = str(folder / "meshes" / file.name)
    try:
        spec.compile()
    except ValueError as error:
        raise BadInput("model", got=str(error).splitlines()[0], expected="one that MuJoCo compiles") from error
    path = folder / MODEL
    write_text(path, spec.to_xml().replace(f'file="{folder}/', 'file="'))
    return path
