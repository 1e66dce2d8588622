"""Bytes that layers and optimizers move, counted by hand."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from training import MakeSetup
from trainlab.measure.flops import traffic_bytes
from trainlab.measure.layer_profile import profile_layers
from trainlab.record.cost_record import LayersRecord
from trainlab.spec import CostSpec
from trainlab.workloads.workload import Workload

ROWS, WIDTH, BATCH, TOKENS = 50_000, 16, 10, 8
TABLE = 4 * ROWS * WIDTH
READ = 4 * BATCH * TOKENS * WIDTH
"""Bytes of the rows that a batch looks up."""
INDICES = 8 * BATCH * TOKENS
SPARSE = {"optimizer": "sgd", "optimizer_code": "loop"}
"""The fused updates take no sparse gradients."""
SPEC = CostSpec(warmup_steps=1, active_steps=1)


class Lookup(nn.Module):
    """A large table of which a batch reads a few rows."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, sparse=sparse)
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.last(self.table((inputs * 1000).long().abs()).mean(1))
        return logits


def record_of(
    make_setup: MakeSetup, tiny: Workload, model: Callable[[], nn.Module], **settings: Any
) -> LayersRecord:
    setup = make_setup(
        workload=dataclasses.replace(tiny, model=model), batch_size=BATCH, **settings
    )
    assert setup.train_batches.gather(torch.arange(BATCH))[0].shape[1:].numel() == TOKENS
    return profile_layers(setup, SPEC)


def test_an_embedding_reads_the_rows_it_looks_up_and_a_sparse_gradient_is_as_large(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    dense = record_of(make_setup, tiny, Lookup, optimizer="sgd")
    sparse = record_of(make_setup, tiny, lambda: Lookup(sparse=True), **SPARSE)
    (row,), (of_sparse,) = (
        [row for row in record.rows if row.name == "table"] for record in (dense, sparse)
    )
    assert row.forward_bytes == of_sparse.forward_bytes == READ + INDICES + READ
    assert row.backward_bytes == READ + INDICES + TABLE, "a dense gradient is as large as the table"
    assert of_sparse.backward_bytes < 4 * READ
    assert dense.optimizer is not None
    assert TABLE * 3 <= dense.optimizer.num_bytes < TABLE * 3.1
    assert sparse.optimizer is not None
    assert sparse.optimizer.num_bytes < 10 * READ


def test_the_optimizers_bytes_are_those_of_its_passes(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    # Reads weight and gradient, writes weight; adam both moments, too.
    for optimizer, passes in (("sgd", 3), ("adam", 7)):
        settings = {"optimizer": optimizer, "optimizer_code": "fused"}
        record = record_of(make_setup, tiny, lambda: nn.Linear(TOKENS, 3), **settings)
        weights = 4 * (TOKENS * 3 + 3)
        assert record.optimizer is not None
        extra = record.optimizer.num_bytes - passes * weights
        assert 0 <= extra <= 100, "beside the weights there are counts of steps"


def test_operators_move_what_they_reach() -> None:
    x, at, aten = torch.zeros(100, 8), torch.tensor([3, 5]), torch.ops.aten
    for operator, arguments, expected in (
        (aten.index_select.default, (x, 0, at), 2 * 64 + 16),
        (aten.index.Tensor, (x, [at]), 2 * 64 + 16),
        (aten.index_add_.default, (x, 0, at, torch.ones(2, 8)), 3 * 64 + 16),
        (aten.copy_.default, (x, torch.ones(100, 8)), 2 * 3200),
        (aten._foreach_add_.Scalar, ([x, x.clone()], 1.0), 4 * 3200),
        (aten.t.default, (x,), 0),
    ):
        assert traffic_bytes(operator, arguments, {}, operator(*arguments)) == expected, operator
