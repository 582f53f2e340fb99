"""Logs of an arm's motion: each file that is none is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robolearn.core import BadInput
from robots import PANDA
from robots.motion_log import MotionLog, load_log

REST = np.tile(PANDA.home, (2000, 1))
GOOD = {"robot": "panda", "period": 0.005, "commanded": REST, "measured": REST}


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    at_the_stop = REST.copy()
    at_the_stop[:, 0] = PANDA.upper[0] + 0.1  # encoders that are off
    log = load_log(MotionLog("panda", 0.005, REST, at_the_stop).save(tmp_path / "log.npz"), PANDA)
    np.testing.assert_array_equal(log.measured, at_the_stop)
    np.savez(tmp_path / "single.npz", **GOOD | {"measured": REST.astype(np.float32), "more": np.array([None])})
    assert load_log(tmp_path / "single.npz", PANDA).measured.dtype == np.float64


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"commanded": np.degrees(REST), "measured": np.degrees(REST)},
            "got commanded -131.8 of panda_joint4, expected -3.072 to -0.0698 rad. The unit of its joints is radians",
        ),
        (
            {"measured": np.add(REST, [0, 0, 0, 0, 0, 0, 9.0])},
            "got measured 9.785 of panda_joint7, expected -2.897 to 2.897 rad",
        ),
        ({"commanded": REST.astype(str)}, "got commanded of type <U32, expected numbers [rad]"),
        ({"measured": REST.astype(bool)}, "got measured of type bool, expected numbers [rad]"),
        ({"commanded": np.float64(1.0)}, "got commanded of shape (), expected finite numbers of shape (T, 7)"),
        ({"measured": REST[:-1]}, "got 2000 rows of commanded, 1999 of measured, expected as many of both"),
        ({"commanded": REST[:0], "measured": REST[:0]}, "expected at least 5 s"),
        ({"period": np.full(3, 0.005)}, "got period of shape (3,), type float64, expected one number [s]"),
        ({"period": "5 ms"}, "got period of shape (), type <U4, expected one number [s]"),
        ({"measured": np.array([None, {}])}, "got arrays that cannot be read, expected an .npz with robot, period"),
    ],
)
def test_what_is_no_log_is_one_line(changed: dict, said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **GOOD | changed)
    with pytest.raises(BadInput) as error:
        load_log(tmp_path / "log.npz", PANDA)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_what_is_no_archive_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "whole.npz", **GOOD)
    data = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    (tmp_path / "torn.npz").write_bytes(data[:50000] + b"torn" + data[50004:])
    (tmp_path / "late.npz").write_bytes(b"text before" + data)
    for name, said in (
        ("text.npz", "got another kind of file, expected an .npz with robot, period, commanded, measured"),
        ("cut.npz", "got another kind of file"),
        ("torn.npz", "got arrays that cannot be read"),
        ("late.npz", "got arrays that cannot be read"),
        (".", ", which is a folder, expected an .npz"),
        ("none.npz", "none.npz, which is not there"),
    ):
        with pytest.raises(BadInput) as error:
            load_log(tmp_path / name, PANDA)
        assert said in str(error.value) and "pickle" not in str(error.value), name
