"""The benchmark's arm with noise: two messages differ, and faults that repeat one repeat its noise."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.ros2.faults import CameraFault, VectorFault
from robolearn.bench.emulators.node import make_world
from robolearn.bench.faults.noisy_arm import NOISE, NOISE_RAD, NoisyWorld
from robots.stations import load_contract

pytestmark = pytest.mark.long
CONTRACT = load_contract("sim")


def test_two_messages_differ_by_noise_and_what_a_fault_repeats_does_not() -> None:
    worlds = [make_world(CONTRACT, "lift", 0, kind=kind) for kind in (NoisyWorld, None)]
    plain = worlds[1].joint_state()[1]
    read = np.array([worlds[0].joint_state()[1] for _ in range(400)])
    assert (np.diff(read[:, :7], axis=0) != 0).all() and (read[:, 7:] == plain[7:]).all()
    np.testing.assert_allclose(read.mean(0), plain, atol=NOISE_RAD)
    np.testing.assert_allclose(read[:, :7].std(0), NOISE_RAD, rtol=0.2)
    fault, sent = VectorFault(), []
    for k, what in enumerate((None, "freeze", "freeze", "freeze", None)):
        message = fault.apply(what, (CONTRACT.joints, read[k, :7], np.zeros(7), 0.01 * k))
        assert message is not None and message[3] == 0.01 * k
        sent.append(message[1])
    assert all((one == sent[0]).all() for one in sent[1:4]) and (sent[4] != sent[0]).all()

    clean = worlds[1].image("front").astype(int)
    pictures = [worlds[0].image("front") for _ in range(3)]
    assert np.mean(pictures[0] != pictures[1]) > 0.7
    assert all(0 < np.abs(one - clean).max() <= NOISE for one in pictures)
    camera = CameraFault()
    camera.apply(None, pictures[0])
    assert all((camera.apply("freeze", one) == pictures[0]).all() for one in pictures[1:])
    for world in worlds:
        world.close()
