"""``robolearn calibrate``: hand-eye and lens calibration of a camera, by pictures of a printed board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.cli.choices import Domain, Station
from robolearn.cli.console import make_console
from robolearn.core import BadInput, check_choice
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from robots.stations import Contract


@dataclass(frozen=True, kw_only=True)
class Calibrate(Command):
    """Find the pose of a camera on the flange or beside the arm, and its lens, with a ChArUco board.

    Print the board with --board and glue it to something stiff. A camera on the flange looks at a board that lies
    still; for one beside the arm (--mounted base) the board is fixed to the flange. Then move the arm by hand from
    posture to posture: a picture is taken whenever it rests and the board is seen. Nothing is commanded.
    """

    board: Path | None = None
    """Only write the board to print, as .pdf or .png."""
    paper: str = "a4"
    """Of the board: a4, a3 or letter."""
    columns: int = 7
    """Squares of the board, along its longer side."""
    rows: int = 5
    """Squares of the board, along its shorter side."""
    square: float = 0.03
    """Edge of a square as printed [m]: measure it."""
    marker: float = 0.022
    """Edge of a marker as printed [m]."""
    robot: Station = ""
    """The robot contract, by name or as a file of your own."""
    camera: str = ""
    """Which of its cameras; not needed where it has one."""
    mounted: str = "flange"
    """Mount of the camera: flange or base."""
    data: Path | None = None
    """Pictures that were taken before, in place of live ones."""
    out: Path | None = None
    """Folder for the pictures that are taken live; has to be new."""
    pictures: int = 15
    """Number of pictures that are taken live."""
    lens: str = "contract"
    """Source of the intrinsics: contract, or pictures: estimated from the same pictures (10 at least)."""
    write: bool = False
    """Write the result into the contract; otherwise it is shown for you to copy."""
    domain: Domain = None

    def run(self) -> dict[str, Any]:
        """Of a board ``{"board", "page_mm"}``, else pose, lens and residuals with their units in the names."""
        from hardware.calibration import Board

        board = Board(self.columns, self.rows, self.square, self.marker)
        if self.board is not None:
            return {"board": str(self.board), "page_mm": list(board.write(self.board, self.paper))}
        for flag, value, available in (
            ("--mounted", self.mounted, ("flange", "base")),
            ("--lens", self.lens, ("contract", "pictures")),
        ):
            check_choice(flag, value, available)
        if not self.robot:
            raise BadInput(
                "--robot", got="nothing", expected="the contract whose camera is calibrated, or --board FILE"
            )
        return self._calibrate(board)

    def _calibrate(self, board: Any) -> dict[str, Any]:
        from hardware.calibration import calibrate
        from hardware.calibration.contract_text import snippet
        from hardware.calibration.hand_eye import estimate_lens
        from hardware.calibration.pictures import views_of
        from robots.stations import CONTRACTS, load_contract
        from robots.stations.editing import write_into
        from robots.stations.folder import keep

        contract = load_contract(self.robot)
        path = Path(contract.path)
        if self.write and path.parent == CONTRACTS:
            raise BadInput("--write", got=f"{contract.name}, which ships with robolearn", expected="a copy of your own")
        camera = self._camera_of(contract)
        lens = contract.cameras[camera].intrinsics
        if self.lens == "contract" and lens is None:
            expected = "intrinsics, or --lens pictures"
            raise BadInput(f"cameras.{camera} of contract {contract.name}", got="no intrinsics", expected=expected)
        shots = self._shots(contract, camera, board)
        views = views_of(shots, board, contract.robot)
        if not views:
            got = f"seen in none of {len(shots)} pictures"
            raise BadInput("board", got=got, expected=f"{board.columns}×{board.rows}")
        size = shots[0].picture.shape[:2]
        if self.lens == "pictures":
            lens = estimate_lens(views, (size[0], size[1]))
        assert lens is not None
        if tuple(lens.size) != tuple(size):
            expected = f"{tuple(lens.size)}, as intrinsics have it"
            raise BadInput("size of the pictures", got=tuple(size), expected=expected)
        found = calibrate(views, lens, self.mounted)
        lines, kept = snippet(found), 0
        if self.lens == "contract":
            del lines["intrinsics"]
        if self.write:
            write_into(path, {("cameras", camera, key): value for key, value in lines.items()})
            if contract.version:
                kept = keep(path.parent, f"calibrate {camera}: {found.pixels_rms:.2f} px").number
        return {
            "camera": camera,
            "parent": found.parent,
            "position_m": list(found.pose.position),
            "quaternion_wxyz": list(found.pose.quaternion),
            "pictures": {"taken": len(shots), "used": found.views},
            "residual_px": found.pixels_rms,
            "residual_mm": {"rms": found.position_mm[0], "max": found.position_mm[1]},
            "residual_deg": {"rms": found.rotation_deg[0], "max": found.rotation_deg[1]},
            "deviation": {"mm": found.deviation_mm, "deg": found.deviation_deg},
            "lines": lines,
            "written": str(path) if self.write else None,
            "station_version": kept or None,
        }

    def _camera_of(self, contract: Contract) -> str:

        names = tuple(contract.cameras)
        if not self.camera and len(names) == 1:
            return names[0]
        if not names:
            raise BadInput(f"contract {contract.name}: it has no camera", hint="Describe one there first")
        if self.camera not in names:
            raise BadInput("--camera", got=self.camera or "nothing", available=names)
        return self.camera

    def _shots(self, contract: Contract, camera: str, board: Any) -> list[Any]:
        from hardware.calibration import read_shots, write_shots
        from robolearn.deploy.processes import check_domain

        if self.data is not None:
            return read_shots(self.data, contract.joints)
        if self.out is None or self.out.exists():
            got = "nothing" if self.out is None else f"{self.out}, which is there"
            raise BadInput("--out", got=got, expected="a new folder for the pictures, or --data FOLDER")
        check_domain(self.domain)
        from hardware.ros2.shot_taker import take_shots

        console = make_console(stderr=True)
        shots = take_shots(
            contract, camera, board, self.pictures, lambda line: console.print(line, markup=False), domain=self.domain
        )
        write_shots(self.out, contract.joints, shots)
        return shots

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        if "board" in result:
            width, height = result["page_mm"]
            console.print(f"{result['board']}: print it at 100% on {width:.0f}×{height:.0f} mm, and measure a square")
            return
        x, y, z = (1e3 * value for value in result["position_m"])
        used = result["pictures"]
        console.print(f"camera      {result['camera']} at ({x:.1f}, {y:.1f}, {z:.1f}) mm in the {result['parent']}")
        console.print(f"pictures    {used['used']} of {used['taken']} show the board")
        console.print(f"residuals   {result['residual_px']:.2f} px; the board moves by", end=" ")
        mm, deg = result["residual_mm"], result["residual_deg"]
        console.print(f"{mm['rms']:.2f} mm, {deg['rms']:.3f}° (at most {mm['max']:.2f} mm, {deg['max']:.3f}°)")
        console.print(f"deviation   {result['deviation']['mm']:.2f} mm, {result['deviation']['deg']:.3f}° of the pose")
        if result["written"]:
            version = f", version {result['station_version']} of the station" if result["station_version"] else ""
            console.print(f"written to  {result['written']}{version}")
        else:
            console.print(f"\nBelow cameras.{result['camera']} of the contract:")
            for key, value in result["lines"].items():
                console.print(f"    {key}: {value}", markup=False)
