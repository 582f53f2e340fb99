"""A camera that has noise and sends the same picture again is frozen; one without noise is not, whatever it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import cv2
import numpy as np
import pytest

from hardware.observing.picture_noise import PAIRS, PictureNoise
from hardware.observing.pictures import CameraPictures
from robolearn.core import BadInput
from robots import PANDA

RNG = np.random.default_rng(0)
SCENE = cv2.GaussianBlur(RNG.integers(40, 200, (84, 84, 3)).astype(np.uint8), (9, 9), 0)
HOME = np.array(PANDA.home)
HZ = 25.0


def noisy(scene: np.ndarray, most: int = 2) -> np.ndarray:
    return np.clip(scene + RNG.integers(-most, most + 1, scene.shape), 0, 255).astype(np.uint8)


def jpeg(scene: np.ndarray) -> np.ndarray:
    done, data = cv2.imencode(".jpg", scene, [cv2.IMWRITE_JPEG_QUALITY, 50])
    assert done
    return cv2.imdecode(data, cv2.IMREAD_COLOR)


def with_a_cube(k: int) -> np.ndarray:
    """Something falls through the scene, which else stands, without noise."""
    scene, at = SCENE.copy(), k % 60
    scene[at : at + 12, 20:32] = 15
    return scene


class Camera:
    """The pictures of a camera on a clock of its own, and the arm where `q` is."""

    def __init__(self) -> None:
        self.now, self.count, self.decoded, self.q = 100.0, 0, 0, HOME
        self.pictures = CameraPictures("camera front", PANDA, 0.3, 0.1, lambda: self.now, str)

    def see(self, pixels: np.ndarray, publisher: str = "driver", hz: float = HZ) -> str:
        self.now += 1.0 / hz
        self.count += 1

        def decode() -> np.ndarray:
            self.decoded += 1
            return pixels

        self.pictures.update(
            hash(pixels.tobytes()), decode, self.now, frame="", q=self.q, joints_at=self.now, publisher=publisher
        )
        return self.pictures.problem()

    def learned(self, show: Callable[[int], np.ndarray] = lambda k: noisy(SCENE)) -> Camera:
        """After two seconds at rest."""
        for k in range(50):
            assert self.see(show(k)) == ""
        return self

    def frozen_after(self, pictures: Iterable[np.ndarray], hz: float = HZ) -> int | None:
        """The number of the picture, from 1, that is found frozen."""
        return next((i for i, one in enumerate(pictures, 1) if "had noise" in self.see(one, hz=hz)), None)


def test_a_camera_with_noise_that_stands_is_frozen_at_rest_and_believed_again() -> None:
    camera, stands = Camera().learned(), noisy(SCENE)
    assert camera.frozen_after([stands] * 9) == 4, "0.12 s from the first to the fourth"
    assert camera.pictures.problem() == camera.pictures.silence()
    assert "camera front: frozen, the same picture for 0.12 s from a camera that had noise" in camera.pictures.problem()
    camera.q = HOME + 0.01
    assert camera.see(noisy(SCENE)) == "" and camera.frozen_after([noisy(SCENE) for _ in range(50)]) is None
    quick = Camera().learned()
    assert quick.frozen_after([stands] * 20, hz=65.0) == 8, "7 times a 65th of a second are 0.108 s"
    slow = Camera().learned()
    assert slow.frozen_after([stands] * 20, hz=6.0) == 4, "and three repetitions at least"


@pytest.mark.parametrize("times", [2, 3])
def test_a_picture_that_is_sent_some_times_is_not(times: int) -> None:
    camera = Camera().learned()
    assert camera.frozen_after(one for _ in range(10) for one in [noisy(SCENE)] * times) is None


def test_compression_that_takes_noise_away_leaves_some_in_most_blocks() -> None:
    scene = cv2.resize(SCENE, (640, 480))
    one, other = jpeg(noisy(scene)), jpeg(noisy(scene))
    assert np.mean(one != other) < 0.3, "of the values"
    camera = Camera().learned(lambda k: jpeg(noisy(scene)))
    assert camera.frozen_after([one] * 9) == 4


@pytest.mark.parametrize("show", [lambda k: SCENE, with_a_cube])
def test_what_a_camera_without_noise_sees_teaches_nothing(show: Callable[[int], np.ndarray]) -> None:
    camera = Camera().learned(show)
    assert camera.frozen_after([show(7)] * 50) is None and camera.pictures.silence() == ""


@pytest.mark.parametrize(
    ("speed", "times", "found"),
    [(0.4, 99, 4), (-0.4, 99, 4), (0.1, 99, 5), (0.05, 99, 9), (0.007, 99, None), (0.6, 3, None)],
)
def test_a_camera_without_noise_that_stands_while_the_arm_moves(speed: float, times: int, found: int | None) -> None:
    """A joint goes at `speed` [rad/s], and the camera sends each picture `times`: and needs 0.015 rad."""
    camera = Camera().learned(with_a_cube)
    found_at = None
    for k in range(1, 50):
        camera.q = HOME + (k - 1) * speed / HZ * np.eye(len(HOME))[4]
        if camera.see(with_a_cube(k // times * times)) and found_at is None:
            found_at = k
            assert "frozen, the same picture although the arm moved" in camera.pictures.silence()
    assert found_at == found


def test_a_camera_that_sends_each_picture_twice_is_not_learned() -> None:
    camera = Camera()
    for _ in range(60):
        one = noisy(SCENE)
        camera.see(one)
        camera.see(one)
    assert camera.frozen_after([noisy(SCENE)] * 50) is None


@pytest.mark.parametrize("turn", [0.1, 0.0])
def test_a_hand_that_turns_does_not_hide_that_only_single_bits_change(turn: float) -> None:
    camera, problems = Camera(), []
    for k in range(60):
        camera.q = HOME + np.array([0.002 * k, 0, 0, 0, 0, 0, turn * (k % 2)])  # the last turns the hand alone
        flipped = SCENE.copy()
        flipped.flat[k] ^= 1
        problems.append(camera.see(flipped))
    first = next(k for k, one in enumerate(problems) if one)
    radius = np.hypot(*PANDA.chain.forward(HOME[None])[0][0, :2])
    assert 0.002 * (first - 2) * radius <= 0.005 < 0.002 * first * radius, "where it is turned, every second picture"
    assert "the same picture but for single pixels although the arm moved by 0." in problems[first]
    assert all(problems[first:]), "and stays so"


def test_a_moving_arm_teaches_nothing_and_costs_nothing() -> None:
    noise, decoded = PictureNoise(lambda: 0.0), []
    for k in range(100):
        noise.update(k, lambda: decoded.append(1) or noisy(SCENE), HOME + 0.02 * k)
    assert not noise.learned and not decoded
    for k in range(100, 102 + PAIRS):
        noise.update(k, lambda: decoded.append(1) or noisy(SCENE), HOME)
        assert noise.learned == (k == 101 + PAIRS)
    learned = len(decoded)
    for k in range(200, 300):
        noise.update(k, lambda: decoded.append(1) or noisy(SCENE), HOME)
    assert len(decoded) == learned, "decoded only until it is learned"


def test_another_camera_a_picture_that_cannot_be_read_and_no_arm_begin_anew() -> None:
    def broken() -> np.ndarray:
        raise BadInput("image encoding", got="yuv")

    def fed(count: int, publisher: str = "driver", q: np.ndarray | None = HOME, wrong: int = -1) -> PictureNoise:
        noise = PictureNoise(lambda: 0.0)
        for k in range(count):
            other = publisher if k >= PAIRS else "driver"
            noise.update(k, broken if k == wrong else lambda: noisy(SCENE), q, other)
        return noise

    whole = PAIRS + 2
    assert fed(whole).learned and not fed(whole - 1).learned
    assert not fed(whole, publisher="another").learned and fed(PAIRS + whole, publisher="another").learned
    assert not fed(whole, wrong=10).learned and not fed(2 * whole, q=None).learned
