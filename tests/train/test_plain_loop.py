"""The user's code is called as her own plain PyTorch loop would call it, and otherwise only when the
training is over; so what she counts or keeps outside of the model has the same values in both."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import IterableDataset

import trainlab
from trainlab import Dataset, Split, Workload
from trainlab.train.seeds import data_order, seeded

DRAWN = torch.Generator().manual_seed(0)
X, Y = torch.randn(50, 6, generator=DRAWN), torch.randint(3, (50,), generator=DRAWN)
TEST_X, TEST_Y = X[:13] + 1, Y[:13]
SIZE, EPOCHS, SEED, LR = 8, 2, 5, 0.1


class Stateful:
    """Model, preparation and loss that keep state in every place where one can; all calls are logged."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.hooked: list[float] = []
        self.num_prepared = self.num_losses = 0

    def model(self) -> nn.Module:
        outside = self

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.norm, self.last = (
                    nn.Linear(6, 5),
                    nn.BatchNorm1d(5),
                    nn.Linear(5, 3),
                )
                self.num_calls = 0
                self.kept = torch.zeros(())

            def forward(self, inputs: Tensor) -> Tensor:
                outside.calls.append(f"model {len(inputs)} {self.training}")
                self.num_calls += 1
                outputs = self.last(self.norm(self.first(inputs))) * (1 + 0.01 * self.num_calls)
                self.kept = outputs.sum()  # with its graph, which nothing can copy
                return outputs

        model = Model()
        model.first.register_forward_hook(lambda *_: self.hooked.append(0.01))
        return model

    def prepare(self, inputs: Tensor) -> Tensor:
        self.calls.append("prepare")
        self.num_prepared += 1
        return inputs + 0.01 * self.num_prepared

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls.append("loss")
        self.num_losses += 1
        return F.cross_entropy(outputs, targets) * (1 + sum(self.hooked) + 0.01 * self.num_losses)

    def step(self, model: nn.Module, batch: Any) -> Tensor:
        return self.loss(model(self.prepare(batch[0])), batch[1])


class Samples:
    """Of which each is noisier than the one fetched before."""

    def __init__(self, calls: list[str], inputs: Tensor, targets: Tensor) -> None:
        self._calls, self._inputs, self._targets, self._num = calls, inputs, targets, 0

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        self._calls.append(f"sample {row}")
        self._num += 1
        return self._inputs[row] + 0.01 * self._num, self._targets[row]


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Of which each pass is noisier than the one before."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self._inputs, self._targets, self._num = inputs, targets, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self._num += 1
        return zip(self._inputs + 0.1 * self._num, self._targets, strict=True)


Splits = tuple[Any, Any]
DATA: dict[str, Callable[[Stateful], Splits]] = {
    "tensors": lambda _: (Split(X, Y), Split(TEST_X, TEST_Y)),
    "samples": lambda own: (Samples(own.calls, X, Y), Samples(own.calls, TEST_X, TEST_Y)),
    "stream": lambda _: (Stream(X, Y), Stream(TEST_X, TEST_Y)),
}


def batches(split: Any, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    if isinstance(split, Stream):
        rows: Any = list(split)
        pieces = [rows[start : start + SIZE] for start in range(0, len(rows), SIZE)]
        yield from (tuple(map(torch.stack, zip(*piece, strict=True))) for piece in pieces)  # type: ignore[misc]
        return
    for some in order.split(SIZE):
        if isinstance(split, Split):
            yield split.inputs[some], split.targets[some]
        else:
            inputs, targets = zip(*(split[int(row)] for row in some), strict=True)
            yield torch.stack(inputs), torch.stack(targets)


def plain_loop(kind: str) -> tuple[list[float], list[str]]:
    """Losses and calls of what anyone would write."""
    own = Stateful()
    train, test = DATA[kind](own)
    with seeded(SEED, "weights"):
        model = own.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    losses = []
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for inputs, targets in batches(train, data_order(SEED, epoch, len(X))):
            loss = own.loss(model(own.prepare(inputs)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            for inputs, targets in batches(test, torch.arange(len(TEST_X))):
                own.loss(model(own.prepare(inputs)), targets)
    return losses, own.calls


INSTRUMENTS: dict[str, dict[str, Any]] = {
    "none": {"tensorboard": False},
    "all": {"probes": ["first:activation:mean", "mul:activation:mean", "*:grad:norm"]},
}


@pytest.mark.parametrize("by_step", [False, True], ids=["by loss", "by step"])
@pytest.mark.parametrize("kind", DATA)
def test_state_outside_the_model_is_what_the_plain_loop_makes_it(
    kind: str, by_step: bool, tmp_path: Path
) -> None:
    expected, calls = plain_loop(kind)
    for name, engine in (("none", "eager"), ("all", "eager"), ("all", "auto")):
        own = Stateful()
        fields = {"step": own.step} if by_step else {"loss": own.loss, "prepare": own.prepare}
        train, test = DATA[kind](own)
        workload = Workload(name="own", model=own.model, data=Dataset("own", train, test), **fields)
        sizes: dict[str, Any] = {"batch_size": SIZE, "test_batch_size": SIZE, "log_every_steps": 1}
        run = trainlab.run(
            workload,
            out=tmp_path / f"{name}-{engine}",
            seeds=[SEED],
            epochs=EPOCHS,
            optimizer="sgd",
            lr=LR,
            device="cpu",
            engine=engine,
            **sizes,
            **INSTRUMENTS[name],
        )
        (trial,) = run.trials()
        assert own.calls[: len(calls)] == calls, (name, engine)
        points = [line for line in run.trial(trial.id).curve() if line["kind"] == "step"]
        losses = [point["train/loss"] for point in points]
        wanted = expected if engine == "eager" else pytest.approx(expected, rel=1e-5)
        assert losses == wanted, (name, engine)
