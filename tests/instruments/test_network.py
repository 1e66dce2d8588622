"""The calls of the network, recorded before the first update without touching the training."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models import Residual
from training import HomedSetup, MakeSetup, probed
from trainlab.instruments.curve_writer import CurveWriter
from trainlab.instruments.model_records import Network
from trainlab.instruments.tensorboard import TensorBoard
from trainlab.train.callbacks import Instrument
from trainlab.workloads.workload import Workload


class Remembering(nn.Module):
    """Has buffers, draws random numbers of every kind, prints, and changes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        print("called")
        inputs.mul_(1.0 + 0.1 * random.random() + 0.1 * float(np.random.rand()))
        self.seen += len(inputs)
        return self.last(torch.dropout(self.norm(inputs), 0.2, self.training))


def curve(setup: HomedSetup, *instruments: Instrument) -> list[dict[str, object]]:
    """The curve of a training, less its times."""
    _, progress = probed(setup, beside=[CurveWriter(), *instruments])
    assert progress.state == "done"
    lines = setup.folder.curve()
    return [{n: v for n, v in line.items() if not n.endswith("_s")} for line in lines]


def test_calls_have_names_shapes_edges_and_parameters(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    setup = make_setup(workload=dataclasses.replace(tiny, model=Residual), batch_size=7)
    curve(setup, Network())
    record = setup.folder.network.read()
    assert record.batch_size == 7
    assert [(row.name, row.type, row.kind) for row in record.rows] == [
        ("first", "Linear", "module"),
        ("branch", "Linear", "module"),
        ("add", "add", "function"),
        ("last", "Linear", "module"),
    ]
    assert [row.inputs for row in record.rows] == [[-1], [0], [0, 1], [2]]
    assert [row.output_shapes for row in record.rows] == [[[7, 8]]] * 3 + [[[7, 3]]]
    assert [row.num_parameters for row in record.rows] == [72, 72, 0, 27]
    assert setup.notes == []


def test_losses_and_what_is_printed_are_the_same_with_network_and_board_and_without(
    make_setup: MakeSetup, tiny: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    for workload in (tiny, dataclasses.replace(tiny, model=Remembering)):
        bare, *watched = (
            (curve(make_setup(workload=workload), *instruments), capsys.readouterr().out)
            for instruments in ((), (Network(),), (TensorBoard(),), (Network(), TensorBoard()))
        )
        assert watched == [bare] * 3
        assert len(bare[0]) > 4


def test_a_model_that_cannot_be_copied_leaves_a_note_and_trains(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    class Uncopied(nn.Linear):
        def __deepcopy__(self, memo: object) -> nn.Module:
            raise RuntimeError("made once only")

    setup = make_setup(workload=dataclasses.replace(tiny, model=lambda: Uncopied(8, 3)))
    curve(setup, Network())
    assert not setup.folder.network.exists()
    (note,) = setup.notes
    assert note.code == "network_failed"
    assert note.values == {"kind": "RuntimeError", "reason": "made once only"}
