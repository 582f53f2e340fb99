"""`robolearn deploy --video`: the whole run is on film, a film that fails stops nothing, and what cannot be filmed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from running import Running
from untrained import make_policy

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos
from hardware.ros2.film_node import EpisodeClock, FilmNode
from hardware.ros2.process import Background, wait_until
from robolearn.cli.film import make_drawer, write
from robots.stations import CONTRACTS, load_contract

pytestmark = pytest.mark.realtime

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 7


def frames(path: Path) -> tuple[float, list[np.ndarray]]:
    """Pictures per second, and the pictures."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.average_rate is not None
        return float(stream.average_rate), [f.to_ndarray(format="rgb24") for f in container.decode(stream)]


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that looks at the arm only: its observation has no picture."""
    return make_policy(tmp_path_factory.mktemp("blind"), load_contract("sim").with_cameras(()).interface)


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*flags: object) -> Running:
        started.append(Running(tmp_path / "logs", "deploy", *flags, domain=DOMAIN))
        return started[-1]

    yield start
    for deployment in started:
        deployment.close()


@pytest.mark.long
def test_the_whole_run_is_on_film(deploy: Callable[..., Running], blind: Path, tmp_path: Path) -> None:
    out = tmp_path / "films" / "run.mp4"
    code, said, err = deploy("--policy", blind, "--episodes", 1, "--video", out).end()
    assert code == 0, err
    result = json.loads(said.splitlines()[-1])
    assert result["video"] == str(out) and "video_error" not in result and result["violations"] == 0
    rate, pictures = frames(out)
    assert rate == 20.0 and pictures[0].shape == (360, 480, 3)
    (seconds,) = result["episode_s"]
    # The episode, and what was before and after it.
    assert 0.95 * seconds < len(pictures) / rate < seconds + 60.0, (seconds, len(pictures))
    first, last = (pictures[i].astype(int) for i in (0, -1))
    assert first.std() > 20 and np.abs(first - last).mean() > 0.5, "nothing has moved"
    # Burned in: nothing before the episode, its time while it runs, and how it ended for a second at least.
    shown = [box(picture) for picture in pictures]
    begin = shown.index(True)
    assert begin > 0 and all(shown[begin:])
    assert 0.9 * seconds * rate < len(shown) - begin
    ends = [np.abs(headline(picture) - headline(pictures[-1])).mean() < 3.0 for picture in pictures]
    assert sum(ends) > 0.9 * rate, "the outcome is not held"
    assert not any(ends[begin : begin + int(0.8 * seconds * rate)])


def headline(picture: np.ndarray) -> np.ndarray:
    """Where a caption stands, as whole numbers."""
    return picture[:16, :160].astype(int)


def box(picture: np.ndarray) -> bool:
    """True where a dark box with light letters is in the upper left corner."""
    corner = headline(picture)
    dark = (np.abs(corner - 40).max(axis=2) < 24).mean()
    return dark > 0.35 and (corner.min(axis=2) > 150).any()


def test_a_caption_is_the_time_and_then_the_outcome() -> None:
    now = 100.0
    episodes = EpisodeClock(lambda: now)
    assert episodes.caption() == "" and not episodes.outcome_shown
    episodes.begin()
    now = 103.25
    assert episodes.caption() in ("episode 1: 3.2 s", "episode 1: 3.3 s") and not episodes.outcome_shown
    episodes.end("success", 3.0)
    now = 120.0
    assert episodes.caption() == "episode 1: solved in 3.0 s" and episodes.outcome_shown
    episodes.begin()
    assert episodes.caption() == "episode 2: 0.0 s" and not episodes.outcome_shown
    for outcome, text in (
        ("failure", "not solved in 9.5 s"),
        ("timeout", "not solved: out of time after 9.5 s"),
        ("stopped", "stopped by the safety filter after 9.5 s"),
    ):
        episodes.end(outcome, 9.5)
        assert episodes.caption() == f"episode 2: {text}"


def filming(running: Running) -> int:
    """The process that films, ready: it is the first to be started, and there are others."""

    def found() -> list[int]:
        assert running.process.poll() is None, running.process.communicate()
        nodes = running.left
        found = [pid for pid, line in nodes.items() if "robolearn.cli.film" in line]
        return found if len(nodes) > 3 else []

    return wait_until(found, 120.0, "the film")[0]


@pytest.mark.long
def test_the_first_episode_waits_for_a_film_that_is_late(
    deploy: Callable[..., Running], blind: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run.mp4"
    running = deploy("--policy", blind, "--episodes", 1, "--video", out)
    pid = filming(running)
    os.kill(pid, signal.SIGSTOP)
    try:  # the arm is ready, and time goes by
        wait_until(lambda: "streamer" in " ".join(running.left.values()), 60.0, "the nodes")
        time.sleep(12.0)
        assert "armed" not in running.log(), running.log()
    finally:
        os.kill(pid, signal.SIGCONT)
    code, said, err = running.end()
    assert code == 0, err
    (seconds,) = json.loads(said.splitlines()[-1])["episode_s"]
    rate, pictures = frames(out)
    assert len(pictures) / rate > 0.95 * seconds and "disarmed → armed" in running.log()


@pytest.mark.long
def test_a_film_that_fails_stops_no_arm(deploy: Callable[..., Running], blind: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.mp4"
    running = deploy("--policy", blind, "--episodes", 1, "--video", out)
    os.kill(filming(running), signal.SIGKILL)
    code, said, err = running.end()
    result = json.loads(said.splitlines()[-1])
    assert code == 1, err
    assert result["success"]["episodes"] == 1 and result["video"] is None and "SIGKILL" in result["video_error"]
    assert not out.exists() and list(tmp_path.glob("*.mp4*")) == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--video", "{tmp}/run.avi"), ("--video", "run.avi", ".mp4")),
        (("--video", "/proc/run.mp4"), ("--video", "cannot be written")),
        (("--video", "{tmp}/run.mp4", "--robot", "fr3", "--yes"), ("--video", "without cameras")),
    ],
)
def test_what_cannot_be_filmed_is_refused(
    flags: tuple[str, ...], words: tuple[str, ...], blind: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from robolearn.cli.main import main

    assert not load_contract("fr3").cameras
    given = [flag.format(tmp=tmp_path) for flag in flags]
    assert main(["deploy", "--policy", str(blind), *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in words), line


@pytest.mark.long
def test_a_real_station_is_filmed_through_its_cameras(tmp_path: Path) -> None:
    values: dict[str, Any] = yaml.safe_load((CONTRACTS / "fr3.yaml").read_text())
    values["cameras"] = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())["cameras"]
    (tmp_path / "seeing.yaml").write_text(yaml.safe_dump(values))
    contract, out = load_contract(str(tmp_path / "seeing.yaml")), tmp_path / "run.mp4"
    sizes = {name: (48 * (i + 1), 48 * (i + 1)) for i, name in enumerate(contract.cameras)}
    with Background(DOMAIN) as ros:
        node = FilmNode(make_drawer, write, contract=contract, context=ros.context, overrides={"out": str(out)})
        node.start()
        ros.add(node)
        from rclpy.node import Node

        driver = ros.add(Node("cameras", context=ros.context))
        publishers = {
            name: driver.create_publisher(messages.message_type(camera.type), camera.topic, qos.sensor(2))
            for name, camera in contract.cameras.items()
        }

        def publish() -> None:
            for i, (name, publisher) in enumerate(publishers.items()):
                picture = np.full((*sizes[name], 3), 60 + 100 * i, np.uint8)
                at = 1e-9 * driver.get_clock().now().nanoseconds
                compressed = "Compressed" in contract.cameras[name].type
                publisher.publish((messages.compressed_image if compressed else messages.image)(picture, at, name))

        driver.create_timer(0.02, publish)
        say = driver.create_publisher(messages.String, f"{contract.namespace}/robolearn/rollout", qos.latched(10))
        time.sleep(1.5)
        say.publish(messages.String(data='{"outcome": ""}'))
        time.sleep(2.0)
        say.publish(messages.String(data='{"outcome": "stopped", "seconds": 2.0}'))
        time.sleep(0.5)
        node.begin_stop("done")
        wait_until(node.stopped, 30.0, "the film to be written")
        assert node.error is None
    rate, pictures = frames(out)
    assert rate == contract.control_hz and 2.0 < len(pictures) / rate < 6.5
    assert len(contract.cameras) == 2
    left, right = (pictures[-1][-10, column].astype(int).mean() for column in (10, -10))
    assert abs(pictures[0][3, 3].astype(int).mean() - 60) < 8, "a caption before the first episode"
    assert abs(pictures[-1][3, 3].astype(int).mean() - 40) < 12, "no caption"
    ended = [np.abs(headline(picture) - headline(pictures[-1])).mean() < 3.0 for picture in pictures]
    assert 1.25 < sum(ended) / rate < 2.0, "half a second until the film was ended, and one to see the outcome"
    assert abs(left - 60) < 8 and abs(right - 160) < 8
