"""The notebooks of the examples run from their first cell to their last in an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "robolearn/examples"
FIRST_POLICY = ("25 episodes", "exact McNemar")
DATA = (
    "12 episodes",
    "calibration",
    "[-1, 1]",
    "nothing wrong",
    "episode 5: 0.00",
    "19 episodes",
    "100 gradient steps",
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said", "pictures", "policy"),
    [("first_policy", FIRST_POLICY, 3, "runs/rl"), ("data", DATA, 2, "runs/reach")],
)
def test_a_notebook_runs(name: str, said: tuple[str, ...], pictures: int, policy: str, tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in shown)
    assert [words for words in said if words not in text] == []
    assert sum("image/png" in output.get("data", {}) for output in shown) == pictures
    assert (tmp_path / policy / "policy/config.json").exists()


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_it_is_stored_without_outputs(notebook: Path) -> None:
    for cell in nbformat.read(notebook, as_version=4).cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)
