"""The network as boxes and as a picture."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich_run import row, run_data, section_of

from fabricate import Fabricated, made_study
from trainlab.analysis.document import Drawing, Paragraph, Table
from trainlab.analysis.network import BOX_H, BOX_W, Node, draw, network
from trainlab.record.cost_record import LayerRow, NetworkRecord
from trainlab.report.contents import report_of
from trainlab.report.pdf import FULL_WIDTH
from trainlab.words import Words

SVG = "{http://www.w3.org/2000/svg}"


def made(rows: list[LayerRow]) -> list[Node]:
    return network(rows, [0.3 / len(rows)] * len(rows))


def boxes(svg: str) -> list[tuple[float, float]]:
    found = ET.fromstring(svg).iter(f"{SVG}rect")  # noqa: S314  our own
    return [(float(r.attrib["x"]), float(r.attrib["y"])) for r in found if r.get("class") == "box"]


def test_a_chain_keeps_its_order_and_its_shares_and_names_are_text_whatever_they_hold() -> None:
    graph = made([row("a", [-1]), row("b", [0]), row("c", [1])])
    assert [node.name for node in graph] == ["a", "b", "c"]
    assert [node.inputs for node in graph] == [(-1,), (0,), (1,)]
    assert [node.share for node in graph] == pytest.approx([0.1] * 3)

    name = '<script>alert("x")</script>&'
    svg = draw(made([row(name, [-1], type="<b>")]), Words("en"))
    assert "<script" not in svg
    titles = [one.text or "" for one in ET.fromstring(svg).iter(f"{SVG}title")]  # noqa: S314
    assert titles[0].startswith(f"{name} <b>")


def test_branches_stand_side_by_side_and_no_box_covers_another() -> None:
    graph = made([row("a", [-1]), row("l", [0]), row("r", [0]), row("sum", [1, 2])])
    places = boxes(draw(graph, Words("en")))
    assert len(places) == 4
    assert places[1][1] == places[2][1]
    assert places[1][0] != places[2][0]
    for number, (x, y) in enumerate(places):
        for other_x, other_y in places[number + 1 :]:
            assert abs(x - other_x) >= BOX_W or abs(y - other_y) >= BOX_H


def test_a_connection_that_skips_a_layer_runs_beside_the_column() -> None:
    svg = draw(made([row("a", [-1]), row("b", [0]), row("sum", [0, 1])]), Words("en"))
    beside = [float(x) for x in re.findall(r"V[\d.]+H([\d.]+)V", svg)]
    (right,) = {x + BOX_W for x, _ in boxes(svg)}
    assert [x > right for x in beside] == [True]


def test_a_hundred_layers_are_drawn_by_block_and_a_flat_chain_still_fits() -> None:
    rows = [row("stem", [-1])]
    for block in range(25):
        for part in ("conv1", "bn1", "conv2", "bn2"):
            rows.append(row(f"blocks.{block}.{part}", [len(rows) - 1]))
    graph = made(rows)
    assert [node.name for node in graph] == ["stem", *(f"blocks.{n}" for n in range(25))]
    assert sum(node.num_parameters for node in graph) == 101 * 1056
    assert sum(node.num_calls for node in graph) == 101
    assert sum(node.share or 0.0 for node in graph) == pytest.approx(0.3)
    assert len(boxes(draw(graph, Words("en")))) == 26
    flat = made([row(str(n), [n - 1]) for n in range(300)])
    assert len(flat) <= 60
    assert all(max(node.inputs) < number for number, node in enumerate(flat))


def test_boxes_without_times_have_names_shapes_and_parameters_alone() -> None:
    rows = [row("conv", [-1], type="Conv2d"), row("fc", [0])]
    svg = draw(network(rows), Words("en"))
    found = ET.fromstring(svg).iter(f"{SVG}text")  # noqa: S314  our own
    texts = ["".join(one.itertext()) for one in found]
    assert texts == ["batch", "convConv2d", "16x32 · 1,056 parameters", "fcLinear", texts[-1]]
    assert "%" not in svg
    assert 'class="track"' not in svg


def test_a_run_that_measured_no_cost_shows_its_network_without_times(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": [16, 64]}, seeds=2)
    folder = Fabricated().write(tmp_path / "run", study)
    assert "network" not in [section.id for section in report_of(run_data(folder)).sections]
    for trial in folder.trials():
        size = trial.settings["batch_size"]
        rows = [row("conv", [-1], type="Conv2d"), row("fc", [0], output_shapes=[[size, 10]])]
        folder.trial(trial.id).network.write(NetworkRecord(batch_size=size, rows=rows))
    intro, drawing, table = section_of(report_of(run_data(folder)), "network").blocks
    assert isinstance(intro, Paragraph)
    assert intro.text.startswith("2 calls of layers and functions, 2,112 parameters")
    assert intro.text.endswith("Output shapes are those at batch size 16.")
    assert isinstance(drawing, Drawing)
    assert drawing.note == "Each box: name and type, output shape, parameters."
    assert isinstance(table, Table)
    assert [column.heading for column in table.columns] == ["layer", "type", "output", "parameters"]
    assert [entry.text for entry in table.rows[1].entries] == ["fc", "Linear", "16x10", "1,056"]


def test_letters_can_be_read_where_a_chain_fills_the_width_of_a_page() -> None:
    for num_layers in range(1, 60):
        svg = draw(made([row(f"l{n}", [n - 1]) for n in range(num_layers)]), Words("en"))
        width = float(ET.fromstring(svg).attrib["width"])  # noqa: S314  our own
        page_pt, smallest = 499, 12
        assert smallest * min(page_pt / FULL_WIDTH, page_pt / width) > 7
