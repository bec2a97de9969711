"""The notebook of the documentation runs from its first cell to its last."""

import nbclient
import nbformat
from pages import DOCS


def test_the_notebook_runs_and_says_what_it_promises(tmp_path):
    notebook = nbformat.read(DOCS / "notebooks" / "first-steps.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "kept without outputs"
    done = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = "".join(output.get("text", "") for cell in done.cells if cell.cell_type == "code" for output in cell.outputs)
    assert "8000 of 8000 steps" in said
    assert "agent 0 has spent ε = 3.00 of 9" in said
    assert "'verdict': 'consistent'" in said
    kinds = {kind for cell in done.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert "image/png" in kinds, "the curves are shown"
