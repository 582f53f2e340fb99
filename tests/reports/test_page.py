"""The page of reports, against the names of the tests."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "robolearn" / "docs" / "reports.md"


def test_the_page_lists_each_report_that_has_a_test_and_no_other() -> None:
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    tested = {n for name in re.findall(r"def test_(\w+)\(", tests) for n in re.findall(r"(?<=_)\d{2,}(?=_)", name)}
    rows = [
        line for line in PAGE.read_text().splitlines() if re.match(r"\| \w", line) and not line.startswith("| report")
    ]
    listed = {n for row in rows for n in re.findall(r"\b\d{2,4}\b", row.split("|")[1])}
    assert len(tested) >= 40
    assert listed - {"295"} == tested, "295 stands in the message of a test"
