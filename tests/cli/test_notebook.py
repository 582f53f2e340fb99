"""The notebook of the examples runs from its first cell to its last in an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "robolearn/examples/first_policy.ipynb"


@pytest.mark.long
def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in shown if output.output_type == "stream")
    assert "25 episodes" in text and "exact McNemar" in text
    assert sum("image/png" in output.get("data", {}) for output in shown) == 3
    assert (tmp_path / "runs/rl/policy/config.json").exists()


def test_it_is_stored_without_outputs() -> None:
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)
