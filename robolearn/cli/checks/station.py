"""A station walked through live: its contract against what its drivers, cameras and controllers do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any


def walk_through(robot: str, seconds: float, domain: int | None) -> dict[str, Any]:
    """Watch the station of the contract `robot` for `seconds`, and judge it.

    Returns:
      ``{"robot", "seconds", "checks": [{"group", "name", "ok", "found", "fix", "needed"}, …]}``.

    Raises:
      BadInput: no such contract or domain, or no ROS 2 here.
    """
    from robolearn.deploy.programs import check_domain
    from robots.stations import load_contract

    contract = load_contract(robot)
    check_domain(domain)
    from hardware.ros2.station_watch import watch
    from hardware.station import check_station

    found = check_station(contract, watch(contract, seconds, domain))
    checks = [{**asdict(one), "group": group} for group, findings in found.items() for one in findings]
    return {"robot": contract.name, "seconds": seconds, "checks": checks}
