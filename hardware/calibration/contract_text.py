"""A camera's pose and lens as the lines of a contract."""

from __future__ import annotations

from hardware.calibration.hand_eye import Calibration

DIGITS = 6  # of metres and quaternions: a micrometre


def snippet(found: Calibration) -> dict[str, str]:
    """Key of the camera's section → its value as YAML in one line."""
    position, quaternion = _numbers(found.pose.position), _numbers(found.pose.quaternion)
    lens = found.intrinsics
    numbers = ", ".join(f"{key}: {getattr(lens, key):.3f}" for key in ("fx", "fy", "cx", "cy"))
    distortion = f", distortion: {_numbers(lens.distortion)}" if lens.distortion else ""
    return {
        "pose": f"{{parent: {found.parent}, position: {position}, quaternion: {quaternion}}}",
        "intrinsics": f"{{size: [{lens.size[0]}, {lens.size[1]}], {numbers}{distortion}}}",
    }


def _numbers(values: tuple[float, ...]) -> str:
    return f"[{', '.join(f'{round(value, DIGITS) + 0.0:.{DIGITS}f}' for value in values)}]"
