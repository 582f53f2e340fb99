"""The home posture of an arm: its tcp where the embedded tasks begin, looking down, far from its limits.

Many starts of the inverse kinematics are tried. Of those that arrive, with all links above the table and apart,
the best is taken: far from the ends of the ranges and from singularities, with joints near 0.

    score = min_j min(q_j − l_j, u_j − q_j, 1)/1 + σ_min(J)/0.1 − Σ_j |q_j|/n
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robots.chain import Array, Chain
from robots.ik import IKConfig, solve
from robots.spec import Triple

TCP_AT_HOME: Triple = (0.50, 0.0, 0.28)  # of all arms that the embedded tasks are laid out for [m]
DOWN = np.diag([1.0, -1.0, -1.0])  # the tcp's z axis points to the table, its x axis away from the base
STARTS, ROUNDS, MOST = 400, 12, 100
NEAR_M, NEAR_RAD = 5e-4, 2e-3
CLEARANCE = 0.01  # [m]
POSTURES = 20  # in which two geoms may be apart


def find_home(
    model: mujoco.MjModel, chain: Chain, joints: tuple[str, ...], tcp: Triple = TCP_AT_HOME, seed: int = 0
) -> Array:
    """(n,) the home posture [rad]; `chain` is that of the `joints` of `model`.

    Raises:
      BadInput: the arm does not reach it.
    """
    rng = np.random.default_rng(seed)
    middle = 0.5 * (chain.lower + chain.upper)
    reach = np.minimum(0.5 * (chain.upper - chain.lower), np.pi)
    q = middle + reach * rng.uniform(-1, 1, (STARTS, chain.n))
    pos, rot = np.tile(tcp, (STARTS, 1)), np.tile(DOWN, (STARTS, 1, 1))
    for _ in range(ROUNDS):
        q = solve(chain, q, pos, rot, rest=middle, config=replace(IKConfig(), iterations=20, posture_gain=0.0))
    p, r = chain.forward(q)
    angle = np.arccos(np.clip(0.5 * (np.trace(r @ DOWN.T, axis1=1, axis2=2) - 1), -1, 1))
    arrived = (np.linalg.norm(p - pos, axis=1) < NEAR_M) & (angle < NEAR_RAD)
    if not arrived.any():
        nearest = float(np.linalg.norm(p - pos, axis=1).min())
        where = ", ".join(f"{x:g}" for x in tcp)
        hint = "--home-tcp X Y Z is another place; --tip names the body that the gripper is mounted on"
        got, expected = f"a tcp {1e3 * nearest:.0f} mm away at best", f"({where}) m, looking down"
        raise BadInput("home", got=got, expected=expected, hint=hint)
    q = q[arrived]
    margin = np.minimum(q - chain.lower, chain.upper - q).min(axis=1).clip(max=1.0)
    singular = np.linalg.svd(chain.jacobian(q), compute_uv=False)[:, -1]
    score = margin + singular / 0.1 - np.abs(q).mean(axis=1)
    data = mujoco.MjData(model)
    for best in np.argsort(-score)[:MOST]:
        if is_clear(model, data, joints, q[best]):
            return np.round(q[best], 6)
    got = f"none of {len(q)} postures there"
    raise BadInput(
        "home", got=got, expected="all links above the table and apart", hint="--home-tcp X Y Z is another place"
    )


def is_clear(model: mujoco.MjModel, data: mujoco.MjData, joints: tuple[str, ...], q: Array) -> bool:
    """True where at `q` (n,) no link is below the table (z = 0), nor near one that is not its neighbour."""
    link, pairs = _links(model, joints), _pairs(model, joints)
    _place(model, data, joints, q)
    for geom in np.flatnonzero(link >= 2):
        rotation, half = data.geom_xmat[geom].reshape(3, 3), model.geom_aabb[geom, 3:]
        centre = data.geom_xpos[geom] + rotation @ model.geom_aabb[geom, :3]
        if centre[2] - np.abs(rotation[2]) @ half < CLEARANCE:
            return False
    return not any(_near(model, data, pair) for pair in pairs)


def _links(model: mujoco.MjModel, joints: tuple[str, ...]) -> NDArray[np.int64]:
    """(ngeom,) the number of the arm's joints below each geom."""
    bodies = [int(model.joint(name).bodyid[0]) for name in joints]
    link = np.zeros(model.nbody, dtype=np.int64)
    for body in range(1, model.nbody):
        link[body] = link[model.body_parentid[body]] + (body in bodies)
    return link[model.geom_bodyid]


def _pairs(model: mujoco.MjModel, joints: tuple[str, ...]) -> list[tuple[int, int]]:
    """Pairs of geoms two links apart or more that can be apart: shapes of a wrist often overlap wherever it is."""
    link, data, rng = _links(model, joints), mujoco.MjData(model), np.random.default_rng(0)
    pairs = [(a, b) for a in range(model.ngeom) for b in range(a) if abs(int(link[a]) - int(link[b])) >= 2]
    low, high = (np.array([model.joint(name).range[end] for name in joints]) for end in (0, 1))
    apart: set[tuple[int, int]] = set()
    for _ in range(POSTURES):
        _place(model, data, joints, rng.uniform(low, high))
        apart |= {pair for pair in pairs if pair not in apart and not _near(model, data, pair)}
    return sorted(apart)


def _near(model: mujoco.MjModel, data: mujoco.MjData, pair: tuple[int, int]) -> bool:
    return mujoco.mj_geomDistance(model, data, *pair, CLEARANCE, None) < CLEARANCE


def _place(model: mujoco.MjModel, data: mujoco.MjData, joints: tuple[str, ...], q: Array) -> None:
    for name, value in zip(joints, q, strict=True):
        data.qpos[model.joint(name).qposadr[0]] = value
    mujoco.mj_forward(model, data)
