import dataclasses

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch import nn

from training import HomedSetup, MakeSetup, probed
from trainlab.instruments.curve_writer import CurveWriter
from trainlab.instruments.tensorboard import TensorBoard
from trainlab.workloads.workload import Workload

CURVES = [(part, name) for part in ("train", "test") for name in ("loss", "accuracy")]


def watched(setup: HomedSetup) -> EventAccumulator:
    probed(setup, beside=[TensorBoard(), CurveWriter()])
    events = EventAccumulator(str(setup.folder.tensorboard_folder))
    events.Reload()
    return events


def test_scalars_in_the_event_files_equal_the_curve(make_setup: MakeSetup) -> None:
    setup = make_setup(epochs=3)
    events = watched(setup)
    epochs = [line for line in setup.folder.curve() if line["kind"] == "epoch"]
    steps = [line for line in setup.folder.curve() if line["kind"] == "step"]
    tags = {f"{name}/{part} over samples": f"{part}/{name}" for part, name in CURVES}
    for tag, name in {**tags, "lr": "lr"}.items():
        shown = [(event.step, event.value) for event in events.Scalars(tag)]
        assert shown == [(line["samples"], pytest.approx(line[name], rel=1e-6)) for line in epochs]
    shown = [(e.step, e.value) for e in events.Scalars("step/loss/train over samples")]
    expected = [(line["samples"], pytest.approx(line["train/loss"], rel=1e-6)) for line in steps]
    assert shown == expected
    assert len(events.Scalars("time/train_s")) == 3


def test_the_graph_and_hyper_parameters_are_written(make_setup: MakeSetup) -> None:
    setup = make_setup()
    events = watched(setup)
    graph = events.Graph()
    assert isinstance(graph, GraphDef)
    assert any("Linear" in node.name for node in graph.node)
    assert not [tag for tag in events.Tags()["scalars"] if tag.startswith("hparam")]
    told = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    session = HParamsPluginData.FromString(told).session_start_info.hparams
    assert session["batch_size"].number_value == setup.settings.batch_size
    assert session["seed"].number_value == setup.trial.seed
    told = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    metrics = HParamsPluginData.FromString(told).experiment.metric_infos
    assert {info.name.tag for info in metrics} <= set(events.Tags()["scalars"])
    assert "accuracy/test over samples" in {info.name.tag for info in metrics}
    assert not setup.notes


def test_a_graph_that_cannot_be_traced_leaves_a_reason_not_a_crash(
    make_setup: MakeSetup, tiny: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    class Untraceable(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if torch.jit.is_tracing():  # type: ignore[attr-defined]
                raise RuntimeError("a branch:\n\tnot followed\n\tGraph diff:\n\t\t%1 = {}")
            return super().forward(inputs)

    setup = make_setup(workload=dataclasses.replace(tiny, model=lambda: Untraceable(8, 3)))
    events = watched(setup)
    (failed,) = [note for note in setup.notes if note.code == "graph_failed"]
    assert failed.values["kind"] == "RuntimeError"
    assert failed.values["reason"] == "a branch: not followed"
    assert len(events.Scalars("loss/test over samples")) == 2
    assert capsys.readouterr().out == ""
