import dataclasses

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from training import HomedSetup, MakeSetup, train
from trainlab.instruments.curves import Curves
from trainlab.instruments.tensorboard import TensorBoard, image_grid
from trainlab.train.moments import Moments, Progress
from trainlab.workloads.workload import Workload


def watched(setup: HomedSetup) -> EventAccumulator:
    moments, progress = Moments([TensorBoard(), Curves()]), Progress()
    train(setup, moments, progress)
    moments.trial_ends(progress)
    events = EventAccumulator(str(setup.folder.tensorboard_folder))
    events.Reload()
    return events


def test_scalars_in_the_event_files_equal_the_curve(make_setup: MakeSetup) -> None:
    setup = make_setup(epochs=3)
    events = watched(setup)
    epochs = [line for line in setup.folder.curve() if line["kind"] == "epoch"]
    steps = [line for line in setup.folder.curve() if line["kind"] == "step"]
    for name in ("train/loss", "train/accuracy", "test/loss", "test/accuracy", "lr"):
        shown = [(event.step, event.value) for event in events.Scalars(name)]
        assert shown == [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in epochs]
    shown = [(event.step, event.value) for event in events.Scalars("step/train/loss")]
    assert shown == [(line["step"], pytest.approx(line["train/loss"], rel=1e-6)) for line in steps]
    assert len(events.Scalars("time/train_s")) == 3


def test_the_graph_and_hyper_parameters_are_written(make_setup: MakeSetup) -> None:
    setup = make_setup()
    events = watched(setup)
    names = [node.name for node in _graph(events)]
    assert any("Linear" in name for name in names)
    assert "hparam/test/accuracy" in events.Tags()["scalars"]
    assert [note.code for note in setup.notes] == ["samples_no_images"]


def test_a_graph_that_cannot_be_traced_leaves_a_reason_not_a_crash(
    make_setup: MakeSetup, tiny: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    class Untraceable(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if torch.jit.is_tracing():  # type: ignore[attr-defined]
                raise RuntimeError("a branch the tracer cannot follow")
            return super().forward(inputs)

    setup = make_setup(workload=dataclasses.replace(tiny, model=lambda: Untraceable(8, 3)))
    events = watched(setup)
    (failed,) = [note for note in setup.notes if note.code == "graph_failed"]
    assert failed.values["kind"] == "RuntimeError"
    assert "a branch the tracer cannot follow" in str(failed.values["reason"])
    assert len(events.Scalars("test/loss")) == 2
    assert capsys.readouterr().out == ""


def test_curves_are_identical_byte_for_byte_with_tensorboard_and_without(
    make_setup: MakeSetup,
) -> None:
    curves = []
    for instruments in ([Curves()], [Curves(), TensorBoard()], [Curves()]):
        setup, progress = make_setup(), Progress()
        moments = Moments(instruments)
        train(setup, moments, progress)
        moments.trial_ends(progress)
        lines = setup.folder.curve_file.read_bytes().splitlines()
        # Times stand last in a line; the rest must not differ in a single byte.
        curves.append(
            [line.partition(b', "time_s"')[0].partition(b', "train_s"')[0] for line in lines]
        )
    assert curves[0] == curves[1] == curves[2]
    assert len(curves[0]) > 4


def test_the_grid_keeps_every_pixel_in_reading_order() -> None:
    images = torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 1, 2, 3)
    grid = image_grid(images)
    assert grid.shape == (1, 2, 15)
    assert grid[0, 0, ::3].tolist() == [0, 1, 2, 3, 4]
    many = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1)
    assert image_grid(many)[0].tolist() == [
        list(range(8)),
        list(range(8, 16)),
        [16, 17, 18, 19, 0, 0, 0, 0],
    ]


def _graph(events: EventAccumulator) -> list:  # type: ignore[type-arg]
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    graph = events.Graph()
    assert isinstance(graph, GraphDef)
    return list(graph.node)
