"""The page of a transfer: every arm with its interval, and no arm of which nothing is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robolearn.eval.intervals import Success
from robolearn.eval.transfer_page import draw_arms, write_transfer_page

ROWS = {
    "none": {"10": Success.of(100, 200), "11": Success.of(0, 200)},
    "identified": {"11": Success.of(190, 200)},
}


@pytest.mark.long
def test_each_arm_has_its_interval(tmp_path: Path) -> None:
    """By R's binom.test: 100 of 200 is 42.9 to 57.1%, 190 of 200 is 91.0 to 97.6%, none of 200 at most 1.8%."""
    predictions = [("none", "0.940 to 0.974", "0.096, worst 0.140", "20.6, worst 26.9")]
    promised = {"RL": {"none": 0.98, "identified": 0.927}}
    page = write_transfer_page(tmp_path / "report.html", "lift", {"RL": ROWS}, promised, predictions, "python again")
    html = page.read_text()
    for text in ("50.0 (42.9–57.1)", "0.0 (0.0–1.8)", "95.0 (91.0–97.6)", "98.0", "92.7", "–</td>", "0.940 to 0.974"):
        assert text in html
    assert html.count("<svg") == 1 and "python again" in html


@pytest.mark.long
def test_points_and_intervals_stand_over_their_arms() -> None:
    axes: Any = draw_arms("RL", ROWS).axes[0]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    at = sorted((round(float(line.get_xdata()[0])), float(line.get_ydata()[0])) for line in points)
    assert at == [(0, 0.5), (1, 0.0), (1, 0.95)]
    spans = sorted(tuple(round(float(y), 3) for y in line.get_ydata()) for line in axes.lines if line not in points)
    assert spans == [(0.0, 0.018), (0.429, 0.571), (0.91, 0.976)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "11"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["none", "identified"]
