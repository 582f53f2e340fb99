"""The page of reports, against the names of the tests: one report each, by its repository and its number."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "robolearn" / "docs" / "reports.md"
HEADS = ("# ", "## Does not apply here", "## Not found")


def reports(section: str) -> set[tuple[str, int]]:
    """(owner/name, number) of each report in the first column of a section's table."""
    _, rest = ("\n" + PAGE.read_text()).split("\n" + section, 1)
    rows = [line.split("|")[1] for line in rest.split("\n## ", 1)[0].splitlines() if re.match(r"\| \S+/\S", line)]
    found: list[tuple[str, int]] = []
    for row in rows:
        for part in row.split(","):
            words = part.split()
            found.append((words[0] if len(words) == 2 else found[-1][0], int(words[-1])))
    assert len(found) == len(set(found)), "each report is listed once"
    return set(found)


def prefix(repository: str, number: int) -> str:
    return f"test_{re.sub(r'[^a-z0-9]', '_', repository.split('/')[1].lower())}_{number}_"


TESTS = [name for path in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.M)]


def test_the_page_lists_each_report_that_has_a_test_and_no_other() -> None:
    expected = {prefix(*report): report for report in reports(HEADS[0])}
    numbered = [name for name in TESTS if re.search(r"_\d+_", name)]
    tested = {one: [name for name in numbered if name.startswith(one)] for one in expected}
    assert len(expected) == len(reports(HEADS[0])), "no two repositories of one name"
    assert not [report for one, report in expected.items() if not tested[one]], "listed, without a test"
    assert not [name for name in numbered if not name.startswith(tuple(expected))], "tested, and not listed"
    assert not [name for name in numbered if re.search(r"_and_\d+_", name)], "one report each"
    assert sum(map(len, tested.values())) >= 40


def test_what_does_not_apply_and_what_was_not_found_has_no_test() -> None:
    others = [reports(head) for head in HEADS]
    assert not (others[0] & others[1] or others[0] & others[2] or others[1] & others[2])
