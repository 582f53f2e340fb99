"""The arm that is drawn is the arm that is moved."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np
import pytest
import viser
from browser_driver import project

from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.browser.page import Page, mosaic
from hardware.teleop.browser.scene import ArmView, Stage, Viewpoint, geom_mesh
from robolearn.core.se3 import quat_to_matrix
from robots import PAIRS, ROBOTS

SIDES = ("left", "right")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    page = Page(ControlArbiter(), ROBOTS["panda"])
    yield page
    page.guarded.close()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_bodies_go_where_the_chain_goes(page: Page, name: str) -> None:
    robot = ROBOTS[name]
    view = ArmView(page.server, robot)
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    site = model.site(robot.tcp_site)
    body = model.body(int(site.bodyid[0])).name
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = rng.uniform(robot.lower, robot.upper)
        view.move(q, 0.5)
        at, wxyz = view.data.body(body).xpos, view.data.body(body).xquat
        tcp = at + quat_to_matrix(wxyz) @ site.pos
        assert np.allclose(tcp, robot.chain.forward(q[None])[0][0], atol=1e-9)
    frames = [h for h in view.frames.values() if isinstance(h, viser.FrameHandle)]
    assert len(frames) >= len(robot.joints)


def test_the_gripper_opens(page: Page) -> None:
    robot = ROBOTS["panda"]
    view = ArmView(page.server, robot)
    gap = []
    for opening in (0.0, 1.0):
        view.move(np.array(robot.home), opening)
        fingers = [int(view.model.joint(joint).bodyid[0]) for joint in robot.gripper.joints]
        gap.append(np.linalg.norm(view.data.xpos[fingers[0]] - view.data.xpos[fingers[1]]))
    assert gap[1] - gap[0] == pytest.approx(robot.gripper.max_width)


@pytest.mark.long
def test_two_arms_stand_where_the_pair_says_each_with_its_own_gripper(page: Page) -> None:
    pair = PAIRS["panda_pair"]
    view, model = ArmView(page.server, pair), pair.model_spec().compile()
    rng = np.random.default_rng(0)
    q = rng.uniform(pair.lower, pair.upper)
    view.move(q, np.array([0.25, 1.0]))
    for k, part in enumerate(pair.parts):
        site = model.site(part.named(part.robot.tcp_site))
        at, wxyz = (getattr(view.data, key)[int(site.bodyid[0])] for key in ("xpos", "xquat"))
        tcp = at + quat_to_matrix(wxyz) @ site.pos
        assert np.allclose(tcp, pair.forward(q[None])[0][0, k], atol=1e-9)
        fingers = [int(view.model.joint(part.named(joint)).bodyid[0]) for joint in part.robot.gripper.joints]
        gap = np.linalg.norm(view.data.xpos[fingers[0]] - view.data.xpos[fingers[1]])
        assert gap == pytest.approx([0.25, 1.0][k] * part.robot.gripper.max_width)
    stage = Stage(page.server, pair)
    stage.show(q, np.array([0.08, np.nan]), None, otherwise=0.5)
    found = stage.arm.data.qpos[[stage.arm.model.joint(f"{side}_panda_finger_left").qposadr[0] for side in SIDES]]
    assert found == pytest.approx([0.04, 0.02]), "one that is not known is drawn as asked for"
    assert stage.view.size == pytest.approx(np.linalg.norm([0.50, 0.35, 0.28]), abs=0.01)


def test_meshes_have_the_size_of_their_geoms() -> None:
    model = mujoco.MjModel.from_xml_string(
        """<mujoco><asset><mesh name="m" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset><worldbody>
        <geom type="box" size=".1 .2 .3"/><geom type="capsule" size=".1 .2"/><geom type="cylinder" size=".1 .2"/>
        <geom type="sphere" size=".3"/><geom type="ellipsoid" size=".1 .2 .3"/><geom type="mesh" mesh="m"/>
        <geom type="box" size=".1 .2 .3" pos="1 2 3" quat="0.7071068 0 0 0.7071068"/><geom type="plane" size="1 1 1"/>
        </worldbody></mujoco>"""
    )
    box, mesh_ = (0.1, 0.2, 0.3), None
    halves = [box, (0.1, 0.1, 0.3), (0.1, 0.1, 0.2), (0.3, 0.3, 0.3), box, mesh_, (0.2, 0.1, 0.3)]
    for geom, half in enumerate(halves):
        mesh = geom_mesh(model, geom)
        if half is not None:
            assert mesh.extents == pytest.approx(2 * np.array(half), rel=0.01)
            middle = (1, 2, 3) if geom == 6 else (0, 0, 0)
            assert mesh.bounds.mean(axis=0) == pytest.approx(middle, abs=1e-6)
        else:
            assert mesh.volume == pytest.approx(1 / 6, rel=1e-5)
    plane = geom_mesh(model, 7)
    assert plane.extents == pytest.approx((2, 2, 0)) and (plane.face_normals == (0, 0, 1)).all()


def test_projection_agrees_with_a_camera_matrix() -> None:
    view = Viewpoint.of(ROBOTS["panda"])
    assert project(view, np.array(view.look_at), (800, 600)) == pytest.approx((400, 300))
    # A point a little above the middle of the picture appears fov/2-wise above it, and straight above.
    eye, middle = np.array(view.position), np.array(view.look_at)
    far = np.linalg.norm(middle - eye)
    right = np.cross((middle - eye) / far, [0, 0, 1])
    up = np.cross(right / np.linalg.norm(right), (middle - eye) / far)
    top = middle + up * far * np.tan(0.5 * view.fov)
    assert project(view, top, (800, 600)) == pytest.approx((400, 0), abs=1e-6)


def test_pictures_of_any_size_fit_the_page() -> None:
    for shapes in ([(96, 96)], [(480, 640), (96, 96)], [(10, 700), (700, 10), (1, 1)]):
        picture = mosaic([np.full((*shape, 3), 9, np.uint8) for shape in shapes])
        assert picture.dtype == np.uint8 and picture.shape[2] == 3 and (picture == 9).any()
