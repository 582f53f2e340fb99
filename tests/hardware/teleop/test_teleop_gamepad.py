"""The gamepad with SDL's own virtual joystick: what pygame reads is what a real pad would make it read."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from base_frame import in_base

from hardware.teleop import EpisodeEvent, Status
from hardware.teleop.gamepad import CONFIG, Gamepad
from hardware.teleop.mapping import Axis, MappingConfig, curve
from robolearn.core import BadInput, Interface
from robots import PANDA

HERE = Path(__file__).parent


def virtual_gamepad():
    spec = importlib.util.spec_from_file_location("virtual_gamepad", HERE / "virtual_gamepad.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VirtualGamepad


@pytest.fixture
def pad() -> Iterator:
    with virtual_gamepad()() as pad:
        yield pad


@pytest.fixture
def gamepad(interface: Interface, pad, clock) -> Iterator[Gamepad]:
    device = Gamepad(interface, PANDA, index=pad.index, out=io.StringIO(), clock=clock)
    device.open()
    yield device
    device.close()


def test_nothing_moves_unless_the_dead_man_is_held(gamepad: Gamepad, pad, observe) -> None:
    pad.axis("left_y", -1.0)
    sample = gamepad.sample(observe())
    assert not sample.engaged and sample.action is None and sample.note == "hold LB to move"
    pad.press("left_shoulder")
    sample = gamepad.sample(observe())
    assert sample.engaged and not sample.note
    np.testing.assert_allclose(in_base(sample.action), [1, 0, 0, 0, 0, 0], atol=1e-4)
    pad.release("left_shoulder")
    assert gamepad.sample(observe()).action is None


@pytest.mark.parametrize(
    ("stick", "value", "component", "sign"),
    [
        ("left_y", -1.0, 0, 1),
        ("left_x", -1.0, 1, 1),
        ("right_y", -1.0, 2, 1),
        ("right_x", 1.0, 5, -1),
        ("dpad_right", None, 3, 0.5),
        ("dpad_up", None, 4, 0.5),
    ],
)
def test_sticks_move_along_the_base(gamepad: Gamepad, pad, observe, stick, value, component, sign) -> None:
    pad.press("left_shoulder")
    if value is None:
        pad.press(stick)
    else:
        pad.axis(stick, value)
    expected = np.zeros(6)
    expected[component] = sign
    np.testing.assert_allclose(in_base(gamepad.sample(observe()).action), expected, atol=1e-4)


def test_the_dead_zone_and_the_curve(gamepad: Gamepad, pad, observe) -> None:
    pad.press("left_shoulder")
    pad.axis("left_x", 0.08)
    assert not gamepad.sample(observe()).action[:6].any()
    pad.axis("left_x", 0.5)
    moved = in_base(gamepad.sample(observe()).action)
    assert moved[1] == pytest.approx(-curve(0.5, CONFIG.dead_zone, CONFIG.expo), abs=1e-4)


def test_buttons_are_events_in_order_however_short_the_tap(gamepad: Gamepad, pad, observe) -> None:
    for button in ("start", "a", "b", "x", "y", "back"):
        pad.tap(button)
    assert gamepad.sample(observe()).events == (
        EpisodeEvent.START,
        EpisodeEvent.SUCCESS,
        EpisodeEvent.FAILURE,
        EpisodeEvent.DISCARD,
        EpisodeEvent.REDO,
        EpisodeEvent.QUIT,
    )
    assert gamepad.sample(observe()).events == ()
    pad.press("a")
    assert [gamepad.sample(observe()).events for _ in range(2)] == [(EpisodeEvent.SUCCESS,), ()]


def test_what_drops_a_running_episode_is_asked_back(gamepad: Gamepad, pad, observe) -> None:
    gamepad.show(Status("recording", "", 0, 1, 0, 0.0))
    for button, event in (("back", EpisodeEvent.QUIT), ("y", EpisodeEvent.REDO)):
        pad.tap(button)
        sample = gamepad.sample(observe())
        assert sample.events == () and "once more drops this episode" in sample.note
        pad.tap(button)
        assert gamepad.sample(observe()).events == (event,)
    pad.tap("a")
    assert gamepad.sample(observe()).events == (EpisodeEvent.SUCCESS,)


def test_the_gripper_button_toggles(gamepad: Gamepad, pad, observe) -> None:
    pad.tap("right_shoulder")
    gamepad.sample(observe())
    pad.press("left_shoulder")
    assert gamepad.sample(observe()).action[6] == 1, "pressed without the dead-man"
    pad.tap("right_shoulder")
    assert gamepad.sample(observe()).action[6] == -1
    assert gamepad.sample(observe()).action[6] == -1
    for state in ("recording", "storing", "waiting", "preparing"):
        gamepad.show(Status(state, "", 0, 1, 0, 0.0))
        assert gamepad.sample(observe(opening=66 / 80)).action[6] == -1, "it goes on to hold what it holds"
    gamepad.prepared()
    assert gamepad.sample(observe(opening=1.0)).action[6] == 1, "the arm was reset"


def test_the_trigger_as_gripper(interface: Interface, pad, observe, clock) -> None:
    mapping = MappingConfig(gripper="analog")
    device = Gamepad(interface, PANDA, mapping=mapping, index=pad.index, out=io.StringIO(), clock=clock)
    device.open()
    pad.press("left_shoulder")
    assert device.sample(observe()).action[6] == pytest.approx(1, abs=1e-3)
    pad.axis("right_trigger", 1.0)
    assert device.sample(observe()).action[6] == pytest.approx(-1, abs=1e-3)
    device.close()


def test_an_unplugged_pad_is_gone_until_it_is_opened_anew(gamepad: Gamepad, pad, observe) -> None:
    pad.press("left_shoulder")
    pad.axis("left_y", -1.0)
    assert gamepad.sample(observe()).engaged
    pad.unplug()
    for _ in range(2):
        sample = gamepad.sample(observe())
        assert not sample.engaged and sample.action is None and sample.note == "gamepad: unplugged"
    pad.plug()
    pad.press("left_shoulder")
    assert not gamepad.sample(observe()).engaged, "back in its socket, but nobody looked"
    assert gamepad.reconnect()
    assert gamepad.sample(observe()).engaged
    gamepad.close()
    gamepad.open()
    assert gamepad.sample(observe()).engaged
    gamepad.close()
    assert not gamepad.sample(observe()).engaged


def test_a_dead_man_that_is_let_go_and_one_that_is_lost(gamepad: Gamepad, pad, observe, clock) -> None:
    pad.press("left_shoulder")
    assert gamepad.sample(observe()).released is None
    pad.release("left_shoulder")
    assert gamepad.sample(observe()).released is True
    clock.now += 600.0
    sample = gamepad.sample(observe())
    assert sample.released is True and sample.stamp == clock.now, "a pad at rest says nothing, and is there"
    pad.press("left_shoulder")
    heard, clock.now = gamepad.sample(observe()).stamp, clock.now + 5.0
    pad.unplug()
    for _ in range(2):
        sample = gamepad.sample(observe())
        clock.now += 5.0
        assert sample.released is False and clock.now - sample.stamp >= 5.0, (heard, sample.stamp)
    assert not gamepad.reconnect() and gamepad.gone == "gamepad: unplugged"


def test_a_radio_link_that_dies_ends_the_motion_and_the_next_event_renews_it(
    interface: Interface, pad, observe, clock
) -> None:
    device = Gamepad(interface, PANDA, index=pad.index, out=io.StringIO(), clock=clock)
    device.open()
    pad.press("left_shoulder")
    clock.now += 60
    at_rest = device.sample(observe())
    assert at_rest.engaged and at_rest.action is not None and not at_rest.note, "a hand at rest has nothing to say"
    pad.axis("left_y", -1.0)
    for _ in range(4):
        assert device.sample(observe()).action[:6].any()
        clock.now += 0.6
    for _ in range(2):
        sample = device.sample(observe())
        assert sample.action is None and sample.engaged and "move the stick" in sample.note
        clock.now += 600
    pad.axis("left_y", -0.9)
    sample = device.sample(observe())
    assert sample.action[:6].any() and not sample.note
    device.close()


def test_no_pad_is_said_in_one_line(interface: Interface) -> None:
    with pytest.raises(BadInput, match=r"^gamepad: missing; expected at least 100\. Plug one in"):
        Gamepad(interface, PANDA, index=99).open()


def test_an_axis_that_no_pad_has_is_refused(interface: Interface) -> None:
    with pytest.raises(BadInput, match=r"gamepad: axis: got left_stick; available: left_x"):
        Gamepad(interface, PANDA, mapping=MappingConfig(axes={"x": Axis("left_stick")}))


def test_sdl_leaves_sigterm_alone(tmp_path: Path) -> None:
    program = """
        import os, signal, time
        from hardware.teleop.gamepad import start_sdl
        pygame, _ = start_sdl()
        pygame.event.pump()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    """
    root = HERE.parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == -15 and not done.stdout, done
