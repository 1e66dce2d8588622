"""The network as boxes and as a picture."""

import xml.etree.ElementTree as ET

from rich_run import row

from trainlab.analyse.cost.layers import Layer
from trainlab.record.cost import LayerRow
from trainlab.report.figures.network import Network, network
from trainlab.report.figures.network_drawing import BOX_H, BOX_W, draw
from trainlab.words import Words


def made(rows: list[LayerRow]) -> Network:
    layers = [Layer(one, 0.1, 0.1, forward_ms=1.0, backward_ms=2.0) for one in rows]
    return network(layers, 10.0 * len(rows))


def boxes(svg: str) -> list[tuple[float, float]]:
    root = ET.fromstring(svg)  # noqa: S314  our own
    found = root.iter("{http://www.w3.org/2000/svg}rect")
    return [(float(r.attrib["x"]), float(r.attrib["y"])) for r in found if r.get("class") == "box"]


def test_a_chain_keeps_its_order_and_its_shares() -> None:
    graph = made([row("a", [-1]), row("b", [0]), row("c", [1])])
    assert [node.name for node in graph.nodes] == ["a", "b", "c"]
    assert [node.inputs for node in graph.nodes] == [(-1,), (0,), (1,)]
    assert all(abs(node.share - 0.1) < 1e-9 for node in graph.nodes)


def test_branches_stand_side_by_side_and_no_box_covers_another() -> None:
    graph = made([row("a", [-1]), row("l", [0]), row("r", [0]), row("sum", [1, 2])])
    places = boxes(draw(graph, Words("en")))
    assert len(places) == 4
    assert places[1][1] == places[2][1]
    assert places[1][0] != places[2][0]
    for number, (x, y) in enumerate(places):
        for other_x, other_y in places[number + 1 :]:
            assert abs(x - other_x) >= BOX_W or abs(y - other_y) >= BOX_H


def test_a_hundred_layers_are_drawn_by_block() -> None:
    rows = [row("stem", [-1])]
    for block in range(25):
        for part in ("conv1", "bn1", "conv2", "bn2"):
            rows.append(row(f"blocks.{block}.{part}", [len(rows) - 1]))
    graph = made(rows)
    assert graph.is_collapsed
    assert [node.name for node in graph.nodes] == ["stem", *(f"blocks.{n}" for n in range(25))]
    assert sum(node.num_parameters for node in graph.nodes) == 101 * 1056
    assert sum(node.num_calls for node in graph.nodes) == 101
    assert abs(sum(node.share for node in graph.nodes) - 101 * 3 / 1010) < 1e-9
    assert len(boxes(draw(graph, Words("en")))) == 26


def test_a_flat_chain_of_many_layers_still_fits() -> None:
    graph = made([row(str(n), [n - 1]) for n in range(300)])
    assert graph.is_collapsed
    assert len(graph.nodes) <= 60
    assert all(max(node.inputs) < number for number, node in enumerate(graph.nodes))


def test_a_skip_is_kept_between_blocks() -> None:
    rows = [row("stem", [-1])]
    for block in range(30):
        start = len(rows) - 1
        rows += [row(f"b.{block}.x", [start]), row(f"b.{block}.y", [start + 1])]
        rows.append(row(f"b.{block}.add", [start, start + 2]))
    graph = made(rows)
    assert [node.inputs for node in graph.nodes][:3] == [(-1,), (0,), (1,)]


def test_names_are_text_whatever_they_hold() -> None:
    name = '<script>alert("x")</script>&'
    svg = draw(made([row(name, [-1], type="<b>")]), Words("en"))
    assert "<script" not in svg
    root = ET.fromstring(svg)  # noqa: S314  our own
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0].startswith(f"{name} <b>")


def test_the_labels_line_to_the_loss_is_left_out() -> None:
    graph = made([row("a", [-1]), row("loss", [-1, 0], phase="loss")])
    assert graph.nodes[1].inputs == (0,)
