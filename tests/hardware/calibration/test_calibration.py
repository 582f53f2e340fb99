"""Hand-eye calibration on rendered pictures whose answer is known, the arm by MuJoCo, the lens with its distortion."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml

from hardware.calibration import Board, Calibration, Shot, calibrate, read_shots, write_shots
from hardware.calibration.contract_text import snippet
from hardware.calibration.hand_eye import estimate_lens
from hardware.calibration.pictures import views_of
from robolearn.cli.main import main
from robolearn.core import BadInput
from robots import FR3
from robots.stations import CONTRACTS, Intrinsics, load_contract
from robots.stations.editing import write_into

sys.path.insert(0, str(Path(__file__).parent))
from rendering import LENS, flange, looking_at, pose, render, session

BOARD = Board()
TRUE_LENS = Intrinsics(**LENS)  # type: ignore[arg-type]
# On the flange, a hand's breadth beside the hand and tilted; the board lies on the table, its z axis down.
ON_FLANGE = pose([0.06, -0.03, 0.04], [0.15, -0.1, 0.7])
ON_TABLE = pose([0.40, 0.07, 0.02], [math.pi, 0.0, 0.0])
# Beside the arm, where it sees the board that is fixed to the flange when the arm is at home.
ON_HAND = pose([-0.10, 0.07, 0.15], [math.pi, 0.0, 0.1])
BESIDE = (
    flange(np.array(FR3.home)) @ ON_HAND @ looking_at(np.array([0.13, 0.05, -0.35]), np.array([0.1, 0.07, 0.0]), 0.2)
)

MM, DEG = 1.0, 0.1  # bounds of the error; the pictures have a noise of 2 grey values


def off(found: Calibration, true: np.ndarray) -> tuple[float, float]:
    """Distance [mm] and angle [°] of a pose from the true one."""
    turn = found.pose.rotation.T @ true[:3, :3]
    angle = math.degrees(math.acos(min(1.0, (np.trace(turn) - 1.0) / 2.0)))
    return 1e3 * float(np.linalg.norm(np.array(found.pose.position) - true[:3, 3])), angle


@pytest.fixture(scope="module")
def on_flange() -> list[Shot]:
    return session(BOARD, ON_FLANGE, ON_TABLE, "flange")


@pytest.fixture(scope="module")
def beside() -> list[Shot]:
    return session(BOARD, BESIDE, ON_HAND, "base")


@pytest.mark.long
def test_corners_are_found_where_rays_say() -> None:
    seen = pose([-0.1, -0.07, 0.35], [0.2, -0.1, 0.1])
    found = BOARD.detect(render(BOARD, seen))
    assert found is not None
    pixels, places = found
    assert len(places) == (BOARD.columns - 1) * (BOARD.rows - 1)
    in_camera = places @ seen[:3, :3].T + seen[:3, 3]
    k = np.array([[LENS["fx"], 0, LENS["cx"]], [0, LENS["fy"], LENS["cy"]], [0, 0, 1]])
    wanted, _ = cv2.projectPoints(in_camera, np.zeros(3), np.zeros(3), k, np.array(LENS["distortion"]))
    assert np.linalg.norm(pixels - wanted.reshape(-1, 2), axis=1).max() < 0.3
    assert BOARD.detect(np.full((480, 640, 3), 128, np.uint8)) is None


@pytest.mark.long
def test_a_camera_on_the_flange(on_flange: list[Shot]) -> None:
    found = calibrate(views_of(on_flange, BOARD, FR3), TRUE_LENS, "flange")
    mm, degrees = off(found, ON_FLANGE)
    assert mm < MM and degrees < DEG, (mm, degrees, found)
    assert found.views == 15 and found.pixels_rms < 0.3
    assert found.position_mm[0] <= found.position_mm[1] < 3.0 and found.rotation_deg[1] < 1.0
    # What it says of itself is of the right size, and where the board lies is known as well.
    assert mm < 5 * found.deviation_mm + 0.2 and found.deviation_deg < DEG
    np.testing.assert_allclose(found.board.position, ON_TABLE[:3, 3], atol=2e-3)


@pytest.mark.long
def test_a_camera_beside_the_arm(beside: list[Shot]) -> None:
    found = calibrate(views_of(beside, BOARD, FR3), TRUE_LENS, "base")
    mm, degrees = off(found, BESIDE)
    assert mm < 2 * MM and degrees < DEG, (mm, degrees, found)
    np.testing.assert_allclose(found.board.position, ON_HAND[:3, 3], atol=2e-3)


@pytest.mark.long
def test_the_lens_from_the_same_pictures(on_flange: list[Shot]) -> None:
    views = views_of(on_flange, BOARD, FR3)
    lens = estimate_lens(views, (480, 640))
    for key in ("fx", "fy", "cx", "cy"):
        assert getattr(lens, key) == pytest.approx(LENS[key], abs=4.0), key
    mm, degrees = off(calibrate(views, lens, "flange"), ON_FLANGE)
    assert mm < 5 * MM and degrees < 5 * DEG
    with pytest.raises(BadInput, match="got 9, expected at least 10"):
        estimate_lens(views[:9], (480, 640))


@pytest.mark.long
def test_motion_that_does_not_determine_the_pose_is_refused() -> None:
    shots = session(BOARD, ON_FLANGE, ON_TABLE, "flange", 8, one_axis=True)
    with pytest.raises(BadInput, match=r"about one axis and .* about others, expected 10° about two axes"):
        calibrate(views_of(shots, BOARD, FR3), TRUE_LENS, "flange")


@pytest.mark.long
def test_what_fits_no_pose_is_refused(on_flange: list[Shot]) -> None:
    views = views_of(on_flange, BOARD, FR3)
    with pytest.raises(BadInput, match="got 5, expected at least 6"):
        calibrate(views[:5], TRUE_LENS, "flange")
    with pytest.raises(BadInput, match="poses of the hand: got 4 in 12 pictures, expected at least 6 that differ"):
        calibrate(views[:4] * 3, TRUE_LENS, "flange")
    for part in ("flange", "pixels"):
        broken = [*views[:2], replace(views[2], **{part: np.full_like(getattr(views[2], part), np.nan)}), *views[3:]]
        with pytest.raises(BadInput, match="picture 3 of the board: got NaN or infinity"):
            calibrate(broken, TRUE_LENS, "flange")
    shuffled = [replace(view, flange=views[i - 1].flange) for i, view in enumerate(views)]
    with pytest.raises(BadInput, match="px, expected at most 5 px"):
        calibrate(shuffled, TRUE_LENS, "flange")


@pytest.mark.long
def test_one_bad_picture_among_many_does_little(on_flange: list[Shot]) -> None:
    views = views_of(on_flange, BOARD, FR3)
    moved = views[3].flange.copy()
    moved[:3, 3] += [0.004, -0.003, 0.0]  # the arm was bumped
    found = calibrate([*views[:3], replace(views[3], flange=moved), *views[4:]], TRUE_LENS, "flange")
    assert off(found, ON_FLANGE)[0] < 2 * MM and found.position_mm[1] > 3.0, "and it is told"


@pytest.mark.long
def test_a_board_measured_wrongly_is_refused(on_flange: list[Shot]) -> None:
    """The corners alone hardly show it: 3% move the camera by 10 mm, and the corners by 0.4 px."""
    larger = Board(square=0.0309, marker=0.0227)
    with pytest.raises(BadInput, match=r"size of the board: got 2\.9\d% less than .*, expected .* measure a square"):
        calibrate(views_of(on_flange, larger, FR3), TRUE_LENS, "flange")


# --- files and the command ---------------------------------------------------------------------------------


def station(folder: Path, **camera: Any) -> Path:
    text = (CONTRACTS / "fr3.yaml").read_text()
    commented = text[text.index("# cameras:") : text.index("limits:\n")]
    lens = f"    intrinsics: {{size: [480, 640], fx: {LENS['fx']}, fy: {LENS['fy']}, cx: {LENS['cx']}, "
    lens += f"cy: {LENS['cy']}, distortion: {list(LENS['distortion'])}}}\n"  # type: ignore[arg-type]
    alive = commented.replace("# ", "", 1).replace("#   ", "  ").replace("#     ", "    ").rstrip() + "\n"
    path = folder / "mine.yaml"
    path.write_text(text.replace(commented, alive + lens + "    # of the tripod, not of the hand\n\n"))
    return path


@pytest.mark.long
def test_the_command_writes_the_pose_into_the_contract_and_leaves_the_rest(
    tmp_path: Path, on_flange: list[Shot], capsys: pytest.CaptureFixture
) -> None:
    robot = station(tmp_path)
    write_shots(tmp_path / "shots", FR3.joints, on_flange)
    before = robot.read_text()
    words = ["calibrate", "--robot", str(robot), "--camera", "wrist", "--data", str(tmp_path / "shots"), "--json"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert robot.read_text() == before and result["written"] is None
    assert main([*words, "--write"]) == 0
    after = robot.read_text()
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert len(added) == 1 and added[0].startswith("    pose: {parent: flange, position: [")
    assert after.replace(added[0] + "\n", "") == before, "everything else is as it was, comments too"
    camera = load_contract(robot).cameras["wrist"]
    assert camera.pose is not None and camera.pose.parent == "flange"
    distance = np.linalg.norm(np.array(camera.pose.pose.position) - ON_FLANGE[:3, 3])
    assert 1e3 * distance < MM and result["residual_px"] < 0.3 and result["pictures"] == {"taken": 15, "used": 15}
    # Once more: the line is replaced, not doubled.
    assert main([*words, "--write", "--lens", "pictures"]) == 0
    assert robot.read_text().count("pose: {") == 1 and robot.read_text().count("intrinsics: {") == 1
    assert [p.name for p in tmp_path.glob("*mine*")] == ["mine.yaml"]
    capsys.readouterr()
    assert main([word for word in words if word != "--json"]) == 0
    out = capsys.readouterr().out
    assert " mm in the flange" in out and "px; the board moves by" in out and "    pose: {parent: flange" in out
    # In a station's folder it is a version.
    robot.write_text(before)
    assert main(["station", str(tmp_path / "lab"), "--contract", str(robot)]) == 0
    capsys.readouterr()
    words[2] = str(tmp_path / "lab")
    assert main([*words, "--write"]) == 0 and json.loads(capsys.readouterr().out)["station_version"] == 2
    assert main(["station", str(tmp_path / "lab"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["version"] == "2" and shown["versions"][1]["note"].startswith("calibrate wrist: 0.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--robot: missing"),
        (["--robot", "fr3", "--data", "x"], "contract fr3: it has no camera"),
        (["--robot", "sim", "--camera", "front", "--data", "x"], "no intrinsics"),
        (["--robot", "sim", "--camera", "front", "--lens", "pictures"], "--out: missing"),
        (["--robot", "sim", "--camera", "front", "--lens", "pictures", "--data", "x"], "no shots.json"),
        (["--robot", "sim", "--camera", "front", "--write"], "which ships with robolearn"),
        (["--robot", "sim", "--mounted", "elbow"], "--mounted: got elbow; available: flange, base"),
        (["--board", "board.txt"], "got board.txt; available: .pdf, .png"),
        (["--board", "board.pdf", "--square", "0.05", "--marker", "0.03"], "board on a4: got 350×250 mm"),
        (["--board", "board.pdf", "--marker", "0.04"], "a marker smaller than its square"),
    ],
)
def test_bad_input(words: list[str], message: str, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", *words]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_list_of_shots_that_is_damaged(tmp_path: Path, on_flange: list[Shot]) -> None:
    write_shots(tmp_path, FR3.joints, on_flange[:2])
    read = read_shots(tmp_path, FR3.joints[::-1])
    assert read[0].positions == on_flange[0].positions[::-1]
    np.testing.assert_array_equal(read[1].picture, on_flange[1].picture)
    listed = json.loads((tmp_path / "shots.json").read_text())
    for change, message in (
        ({"shots": [{"picture": "000.png", "positions": ["a"]}]}, "shots.0.positions.0"),
        ({"shots": [{"picture": "000.png", "positions": [0.0]}]}, "got 1, expected 7"),
        ({"shots": [{"picture": "../../etc/passwd", "positions": [0.0] * 7}]}, "a PNG or JPEG beside it"),
        ({"joints": ["a"] * 7}, "got no fr3_joint1"),
    ):
        (tmp_path / "shots.json").write_text(json.dumps({**listed, **change}))
        with pytest.raises(BadInput, match=message):
            read_shots(tmp_path, FR3.joints)


@pytest.mark.long
def test_a_contract_in_other_layouts(tmp_path: Path, on_flange: list[Shot]) -> None:
    found = snippet(calibrate(views_of(on_flange[:8], BOARD, FR3), TRUE_LENS, "flange"))
    values = {("cameras", "wrist", key): value for key, value in found.items()}
    robot = station(tmp_path)
    text = robot.read_text()
    block = "    pose:\n      parent: base\n      # from last year\n      position: [0, 0, 1]\n"
    robot.write_text(text.replace("    max_age_s: 0.2\n", "    max_age_s: 0.2\n" + block))
    write_into(robot, values)
    camera = load_contract(robot).cameras["wrist"]
    assert camera.pose is not None and camera.pose.parent == "flange" and "last year" not in robot.read_text()
    flow = yaml.safe_load(text)
    robot.write_text(yaml.safe_dump(flow, default_flow_style=True))
    before = robot.read_text()
    with pytest.raises(BadInput, match=r"cameras.wrist: got no section with a line for each key"):
        write_into(robot, values)
    with pytest.raises(BadInput):
        robot.write_text(text)
        write_into(robot, {("cameras", "wrist", "pose"): "{parent: elbow}"})
    assert robot.read_text() == text and before != text


@pytest.mark.long
def test_the_page_has_the_size_that_it_says(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["calibrate", "--board", str(tmp_path / "board.png"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    page = cv2.imread(str(tmp_path / "board.png"), cv2.IMREAD_COLOR)
    assert page is not None
    width, height = result["page_mm"]
    assert (width, height) == (297.0, 210.0)
    per_mm = page.shape[1] / width
    assert per_mm == pytest.approx(300 / 25.4, rel=1e-3) and page.shape[0] / height == pytest.approx(per_mm, rel=1e-3)
    found = BOARD.detect(page)
    assert found is not None
    pixels, places = found
    mm = np.linalg.norm(pixels[1] - pixels[0]) / per_mm
    assert mm == pytest.approx(1e3 * np.linalg.norm(places[1] - places[0]), abs=0.1)
    assert main(["calibrate", "--board", str(tmp_path / "board.pdf")]) == 0
    content = (tmp_path / "board.pdf").read_bytes()
    found_box = re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ([0-9.]+) \]", content)
    assert found_box is not None
    points = [float(value) for value in found_box.groups()]
    np.testing.assert_allclose(points, [297 / 25.4 * 72, 210 / 25.4 * 72], atol=0.01)
