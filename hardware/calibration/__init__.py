"""Mounting and lens of a camera: hand-eye calibration with a printed ChArUco board."""

from hardware.calibration.board import Board
from hardware.calibration.hand_eye import Calibration, calibrate
from hardware.calibration.pictures import Shot, read_shots, write_shots

__all__ = ["Board", "Calibration", "Shot", "calibrate", "read_shots", "write_shots"]
