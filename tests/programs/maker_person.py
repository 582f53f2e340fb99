"""A person's process beside the nodes of a station: `python maker_person.py CONTRACT SEED [POLICY]`.

The device is a script that jerks, lets the clutch go and takes it again. With a policy the two move the arm in turn, as
in `robolearn record --policy`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from maker_chain import Person, Phase, wandering
from recording_rig import Paper

from hardware.recording import Session
from robolearn.cli.node_record import open_supervised, supervised
from robolearn.core.machine import searched_before
from robots.stations import load_contract
from sim.tasks import TASKS

SECONDS = 12.0
PRIORITY = 10


def main(path: str, seed: int, policy: str = "") -> int:
    from hardware.ros2.environment import prepare
    from hardware.ros2.process import spin
    from hardware.ros2.teleop_node import TeleopNode
    from robolearn.deploy.recorder import run_recorder

    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.uniform(0.3, 1.5, 40))
    free = 0 if policy else 1  # a hand holds on at first, and who watches a policy does not
    engaged = lambda since: int(np.searchsorted(edges, since)) % 2 != free or (not policy and since < 1.0)  # noqa: E731
    person = Person(time.monotonic, wandering(rng, True), engaged, SECONDS)
    contract = load_contract(path).with_objects(TASKS["lift"]().observation_names)
    prepare()
    if not policy:
        made: list[TeleopNode] = []

        def make() -> TeleopNode:
            own = {"realtime_priority": PRIORITY}
            made.append(TeleopNode(lambda contract, name: person, contract=contract, overrides=own))  # type: ignore[arg-type]
            session = lambda: made[0].session  # noqa: E731
            person.phase = lambda: s.episodes.phase if (s := session()) is not None else Phase.STARTING
            return made[0]

        return spin(make)
    with searched_before():
        device = supervised(person, open_supervised(policy, contract), contract, seed, "lift the cube")  # type: ignore[arg-type]
    session = Session(contract, device, contract.interface, Paper(), "lift the cube", 99, start_s=120.0)
    person.wants = Phase.RECORDING
    states = {"waiting": Phase.READY, "recording": Phase.RECORDING}
    shows = person.show

    def show(status) -> None:
        shows(status)
        person.phase = lambda: states.get(status.state, Phase.PREPARING)

    person.show = show  # type: ignore[method-assign]
    run_recorder(session, priority=PRIORITY, enclaves=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
