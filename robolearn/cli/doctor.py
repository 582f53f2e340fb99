"""``robolearn doctor``: what this machine can do, and how to fix each gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from robolearn.cli.choices import AnyStation
from robolearn.cli.console import make_console
from robolearn.runs.command import Command
from robolearn.runs.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Doctor(Command):
    """Say what this machine can do: simulation, cameras, ROS 2, real-time, devices; and how to fix each gap.

    Ends with exit code 1 when something is missing that simulation and learning need; the rest is optional. With
    --robot it looks at a station instead, live, and 1 means that something there has to be fixed.
    """

    robot: AnyStation = ""
    """Instead: walk through the station of this contract while its drivers run, and say what to fix."""
    device: str | None = None
    """Instead: open a teleoperation device (not the browser) and show what it says."""
    seconds: float = 5.0
    """For how long, with --robot or --device [s]."""
    domain: int | None = None
    """ROS domain, with --robot; by default ROS_DOMAIN_ID, or 0."""
    port: str = ""
    """Serial port of the leader arm."""

    def run(self) -> dict[str, Any]:
        """``{"checks": [{"name", "ok", "found", "fix", "group", "needed"}, …]}``; of a device, see `listen`."""
        if self.robot:
            return walk_through(self.robot, self.seconds, self.domain)
        if self.device is not None:
            return self._listen(self.device)
        from robolearn.cli.checks import CHECKS, SIMULATION, Machine

        machine = Machine()
        work = [(group, check) for group, checks in CHECKS.items() for check in checks]
        found: list[dict[str, Any]] = []
        with Progress("looking around", total=len(work), quiet=self.json) as progress:
            for i, (group, check) in enumerate(work):
                found += [{**asdict(one), "group": group, "needed": group == SIMULATION} for one in check(machine)]
                progress(i + 1)
        return {"checks": found}

    def _listen(self, device: str) -> dict[str, Any]:
        from rich.markup import escape

        from robolearn.cli.checks.devices import listen

        console = make_console(stderr=True)
        return listen(device, lambda line: console.print(escape(line)), port=self.port, seconds=self.seconds)

    def exit_code(self, result: Mapping[str, Any]) -> int:
        """1 when simulation lacks something, or the station."""
        return int(any(check["needed"] and not check["ok"] for check in result.get("checks", ())))

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        """A table by purpose, then the commands, each on a line of its own to copy."""
        if "checks" not in result:
            return super().show(result, console)
        from rich.markup import escape
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        group = None
        for check in result["checks"]:
            if check["group"] != group:
                if group is not None:
                    table.add_row()
                group = check["group"]
                table.add_row("", f"[bold cyan]{group}[/bold cyan]")
            mark = "[green]✓[/green]" if check["ok"] else "[red]✗[/red]" if check["needed"] else "[yellow]–[/yellow]"
            table.add_row(mark, check["name"], escape(check["found"]))
        console.print(table)
        fixes = [check for check in result["checks"] if check["fix"] and not check["ok"]]
        if fixes:
            console.print("\n[bold cyan]How to fix it[/bold cyan]")
        for check in fixes:
            console.print(f"  [bold]{check['name']}[/bold]")
            console.print(f"    {escape(check['fix'])}")
        bad = [check["name"] for check in result["checks"] if check["needed"] and not check["ok"]]
        console.print()
        station = result.get("robot")
        if bad:
            what = f"Fix this before {station} moves" if station else "Simulation does not work here yet"
            console.print(f"[red]{what}[/red]: {', '.join(bad)}")
        elif station:
            console.print(f"[green]The station {station} is as its contract has it.[/green]")
        else:
            console.print("[green]Everything that simulation and learning need is there.[/green]")


def walk_through(robot: str, seconds: float, domain: int | None) -> dict[str, Any]:
    """Watch the station of the contract `robot` for `seconds`, and judge it.

    Returns:
      ``{"robot", "version", "seconds", "checks": [{"group", "name", "ok", "found", "fix", "needed"}, …]}``.

    Raises:
      BadInput: no such contract or domain, or no ROS 2 here.
    """
    from robolearn.deploy.processes import check_domain
    from robots.stations import load_any_contract

    contract = load_any_contract(robot)
    check_domain(domain)
    from hardware.ros2.station_watch import watch
    from hardware.station import check_station

    found = check_station(contract, watch(contract, seconds, domain))
    checks = [{**asdict(one), "group": group} for group, findings in found.items() for one in findings]
    return {"robot": contract.name, "version": contract.version or None, "seconds": seconds, "checks": checks}
