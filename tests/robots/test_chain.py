"""Forward kinematics and Jacobian against MuJoCo, and model files that hold no chain."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput
from robots import PANDA, Chain


def mujoco_truth(model: mujoco.MjModel, joints: tuple[str, ...], site: str, q: NDArray) -> tuple[NDArray, ...]:
    """Pose and Jacobian of `site` with `joints` at `q` and every other joint at zero."""
    data = mujoco.MjData(model)
    data.qpos[:] = 0.0
    data.qpos[[model.joint(name).qposadr[0] for name in joints]] = q
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    linear, angular = np.zeros((3, model.nv)), np.zeros((3, model.nv))
    mujoco.mj_jacSite(model, data, linear, angular, model.site(site).id)
    columns = [model.joint(name).dofadr[0] for name in joints]
    jacobian = np.concatenate([linear, angular])[:, columns]
    return data.site(site).xpos.copy(), data.site(site).xmat.reshape(3, 3).copy(), jacobian


def check(chain: Chain, path: Path, joints: tuple[str, ...], site: str, q: NDArray) -> None:
    model = mujoco.MjModel.from_xml_path(str(path))
    pos, rot = chain.forward(q)
    jacobian = chain.jacobian(q)
    for i, row in enumerate(q):
        true_pos, true_rot, true_jacobian = mujoco_truth(model, joints, site, row)
        np.testing.assert_allclose(pos[i], true_pos, atol=1e-6)
        np.testing.assert_allclose(rot[i], true_rot, atol=1e-6)
        np.testing.assert_allclose(jacobian[i], true_jacobian, atol=1e-6)


ODD = """
<mujoco><compiler angle="radian" autolimits="true"/><worldbody>
  <body pos="0.1 0.2 0.3" quat="0.8 0.6 0 0">
    <body name="a" pos="0 0.1 0" quat="0.5 0.5 -0.5 0.5"><geom size="0.1"/>
      <joint name="a" axis="1 2 -2" range="-1 2"/>
      <body pos="0.3 0 0.1" quat="0.6 0 0.8 0">
        <body name="b" pos="0.2 -0.1 0"><geom size="0.1"/>
          <joint name="b" axis="0 1 0" range="-2 2"/>
          <body name="hand" pos="0 0 0.2" quat="0 0.6 0.8 0"><geom size="0.1"/>
            <site name="tool" pos="0.05 0.02 0.1" quat="0.6 0.8 0 0"/>
            <body name="finger"><geom size="0.1"/><joint name="finger" type="slide" range="0 1"/>
              <site name="tip"/>
            </body>
            <body name="pan"><geom size="0.1"/><joint name="endless" axis="0 0 1"/><site name="rim"/></body>
            <body name="bent"><geom size="0.1"/><joint name="bent" ref="0.5" range="-1 1"/></body>
            <body name="ball"><geom size="0.1"/><joint name="u" range="-1 1"/>
              <joint name="v" axis="1 0 0" range="-1 1"/>
              <site name="top"/>
            </body>
          </body>
        </body>
      </body>
    </body>
    <body name="other"><geom size="0.1"/><joint name="other" range="-1 1"/></body>
    <body name="off"><geom size="0.1"/><joint name="off" pos="0 0 1" range="-1 1"/></body>
  </body>
</worldbody></mujoco>
"""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / "odd.xml"
    path.write_text(ODD)
    return path


def test_slanted_axes_and_bodies_without_joints(odd: Path) -> None:
    chain = Chain.from_mjcf(odd, ("a", "b"), "tool")
    check(chain, odd, ("a", "b"), "tool", np.random.default_rng(1).uniform(-1, 1, (20, 2)))
    np.testing.assert_array_equal(chain.lower, [-1, -2])
    np.testing.assert_array_equal(chain.upper, [2, 2])
    assert chain.n == 2


@pytest.mark.parametrize(
    ("joints", "site", "words"),
    [
        (("a", "bb"), "tool", "got bb; available: a, b, finger"),
        (("a", "finger"), "tip", "joint finger of odd.xml: expected a hinge"),
        (("off",), "tool", "joint off of odd.xml: expected a hinge at its body's origin"),
        (("a", "other"), "tool", "expected one chain"),
        (("b", "a"), "tool", "expected one chain"),
        (("b",), "tool", "expected one chain"),  # joint a would be frozen
        (("a",), "tool", "expected one chain"),  # joint b lies between it and the site
        (("a", "b"), "tip", "expected one chain"),  # the finger moves the tip
        (("a", "b"), "tol", "got tol; available: tool, tip"),
        (("a", "b", "endless"), "rim", "joint endless of odd.xml: got no range"),
        (("a", "b", "bent"), "tool", "joint bent of odd.xml: got a ref"),
        (("a", "b", "v"), "top", "expected one chain"),  # u turns the same body
        ((), "tool", "joints of odd.xml: missing"),
    ],
)
def test_what_is_no_chain_is_refused(odd: Path, joints: tuple[str, ...], site: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Chain.from_mjcf(odd, joints, site)


def test_wrong_shapes_are_refused() -> None:
    for shape in ((7,), (3, 6), (2, 3, 7)):
        with pytest.raises(BadInput, match="joint positions"):
            PANDA.chain.forward(np.zeros(shape))
        with pytest.raises(BadInput, match="joint positions"):
            PANDA.chain.jacobian(np.zeros(shape))
