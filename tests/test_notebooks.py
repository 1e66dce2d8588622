"""The notebooks under examples/, run as a person runs them: by a kernel, from first cell to last."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat, of the development tools")
NotebookClient = pytest.importorskip("nbclient").NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells)


def shown(notebook: Any, mime: str) -> Iterator[str]:
    """What the cells show of a kind."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if mime in output.get("data", ()):
                yield output["data"][mime]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_progress_a_table_and_a_chart(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    pages = list(shown(notebook, "text/html"))
    progress = [page for page in pages if "trainlab-progress" in page]
    assert progress
    for page in progress:
        assert '<progress max="100" value="100"' in page
        assert "trials finished" in page
    runs = [page for page in pages if "trainlab-run" in page]
    assert runs
    assert all("<table" in page and "data:image/svg+xml;base64," in page for page in runs)
    assert not any("<script" in page or "://" in page for page in runs)
    charts = list(shown(notebook, "image/svg+xml"))
    assert charts
    assert all(chart.startswith("<svg") for chart in charts)
    assert (tmp_path / "runs").is_dir()


CELLS = """\
import trainlab
run = trainlab.run("fashion-mlp", data="bundled", train_samples=64, epochs=1, device="cpu")
%load_ext tensorboard
%tensorboard --logdir runs --host 127.0.0.1 --port 0
import json, time, urllib.request
from tensorboard import manager
(server,) = [one for one in manager.get_all() if one.logdir == "runs"]
seen, address = {}, f"http://127.0.0.1:{server.port}/data/plugin/scalars/tags"
for _ in range(100):
    seen = json.load(urllib.request.urlopen(address))
    if seen: break
    time.sleep(0.2)
print("TAGS", sorted({tag for tags in seen.values() for tag in tags}))
import os, signal; os.kill(server.pid, signal.SIGTERM)
"""


@pytest.mark.slow
def test_tensorboard_in_a_cell_shows_the_runs_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where TensorBoard notes its servers
    monkeypatch.setenv("TENSORBOARD_BINARY", str(Path(sys.executable).with_name("tensorboard")))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELLS)])
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert any("tensorboard-frame" in page for page in shown(notebook, "text/html"))
    printed = "".join(out.get("text", "") for out in notebook.cells[0].outputs)
    tags = printed.partition("TAGS ")[2].splitlines()[0]
    assert "loss/train over samples" in tags
    assert "accuracy/test over samples" in tags
