"""Steps, updates, optimizers and loaders of the user's own give what a plain loop written by hand gives."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler
from torch.utils.data import Dataset as TorchDataset

from command import Verb
from training import curve_of
from trainlab import Dataset, Split, TrainSpec, Workload
from trainlab.data.dataset import loaded
from trainlab.errors import WorkloadError
from trainlab.record.run_folder import RunFolder
from trainlab.train.dataloading import LoadedBatches
from trainlab.train.seeds import data_order, seeded

SIZE = 50


def made(make: Callable[[], Any]) -> Any:
    """A model with the first weights of the trial."""
    with seeded(3, "weights"):
        return make()


def by_hand(
    update: Callable[[Tensor], Tensor], epoch_ends: Callable[[], Any] = lambda: None
) -> list[float]:
    """The losses of updates, each of a batch's row numbers; dropout draws as in the trial."""
    losses = []
    for epoch in (1, 2):
        with seeded(3, "dropout", epoch):
            losses += [float(update(rows).detach()) for rows in data_order(3, epoch, SIZE).split(8)]
        epoch_ends()
    return losses


X = torch.randn(SIZE, 6, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 0).long()


class Pairs(TorchDataset[dict[str, Tensor]]):
    """Samples as mappings."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"x": X[row], "y": Y[row]}


PAIRS = Dataset("pairs", train=Pairs(), test=Pairs())
TENSORS = Dataset("pairs", Split(X, Y), Split(X, Y))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def own_step(model: nn.Module, batch: Any) -> dict[str, Any]:
    scores = model(batch["x"])
    return {"loss": F.cross_entropy(scores, batch["y"]), "largest": scores.abs().max()}


def updated(optimizer: torch.optim.Optimizer, loss: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def plain_update(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor) -> Tensor:
    return updated(optimizer, F.cross_entropy(model(X[rows]), Y[rows]))


def plain_losses() -> list[float]:
    model = made(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return by_hand(lambda rows: plain_update(model, optimizer, rows))


@dataclass
class Batch:
    x: Tensor
    y: Tensor
    names: list[str]


class Named(NamedTuple):
    x: Tensor
    y: Tensor


def collated(kind: type) -> Callable[[list[dict[str, Tensor]]], Any]:
    def collate(samples: list[dict[str, Tensor]]) -> Any:
        x, y = (torch.stack([one[name] for one in samples]) for name in ("x", "y"))
        return kind(x, y, ["a"] * len(x)) if kind is Batch else kind(x, y)

    return collate


@pytest.mark.parametrize("kind", [dict, Batch, Named])
def test_a_step_over_any_kind_of_batch_is_the_plain_loop(kind: type, tmp_path: Path) -> None:
    collate = None if kind is dict else collated(kind)

    def step(model: nn.Module, batch: Any) -> Any:
        if kind is dict:
            return own_step(model, batch)
        assert isinstance(batch, kind)
        return F.cross_entropy(model(batch.x), batch.y)

    data = Dataset("pairs", train=Pairs(), test=Pairs(), collate_fn=collate)
    curve, *_ = curve_of(Workload(name="own", model=net, data=data, step=step), tmp_path)
    assert curve.losses == plain_losses()
    assert ("test/largest" in curve.epochs[-1].metrics) == (kind is dict)


def test_a_step_may_give_outputs_and_targets_for_metrics(tmp_path: Path) -> None:
    def step(model: nn.Module, batch: Any) -> dict[str, Any]:
        scores = model(batch["x"])
        loss = F.cross_entropy(scores, batch["y"])
        return {"loss": loss, "outputs": scores, "targets": batch["y"]}

    right = {"right": lambda outputs, targets: (outputs.argmax(1) == targets).float()}
    own = {"name": "own", "model": net, "metrics": right}
    curve, *_ = curve_of(Workload(**own, data=PAIRS, step=step), tmp_path)
    other, *_ = curve_of(Workload(**own, data=TENSORS, loss=F.cross_entropy), tmp_path)
    assert curve.epochs[-1].metrics == other.epochs[-1].metrics


class Lines(nn.Module):
    """A recurrent network whose hidden state goes on from batch to batch."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRU(3, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs, hidden = self.cell(x, hidden)
        return self.last(outputs), hidden


TEXT = torch.randn(41, 4, 3, generator=torch.Generator().manual_seed(1))


class Windows:
    """Batches in the order of the text."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, 40, 5):
            yield TEXT[start : start + 5], TEXT[start + 1 : start + 6]


def carrying(model: Any, batch: Any, state: dict[str, Any]) -> Tensor:
    inputs, targets = batch
    outputs, hidden = model(inputs, state.get("hidden"))
    state["hidden"] = hidden.detach()
    return F.mse_loss(outputs, targets)


def test_state_is_carried_from_batch_to_batch(tmp_path: Path) -> None:
    data = Dataset("text", train=Windows(), test=Windows())
    curve, *_ = curve_of(Workload(name="own", model=Lines, data=data, step=carrying), tmp_path)
    model, losses = made(Lines), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        hidden = None
        for inputs, targets in Windows():
            outputs, hidden = model(inputs, None if hidden is None else hidden.detach())
            loss = F.mse_loss(outputs, targets)
            losses.append(updated(optimizer, loss).item())
    assert curve.losses == losses


def gan() -> dict[str, nn.Module]:
    return {
        "generator": nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 6)),
        "critic": nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)),
    }


def adams(models: Any, settings: TrainSpec) -> dict[str, torch.optim.Optimizer]:
    rates = {"generator": settings.start_lr, "critic": settings.start_lr / 2}
    return {name: torch.optim.Adam(models[name].parameters(), lr=rates[name]) for name in rates}


judged = F.binary_cross_entropy_with_logits


def critic_loss(models: Any, real: Tensor, fake: Tensor) -> Tensor:
    right, wrong = models["critic"](real), models["critic"](fake)
    return judged(right, torch.ones_like(right)) + judged(wrong, torch.zeros_like(wrong))


def gan_update(ctx: Any, batch: Any) -> dict[str, Tensor]:
    real = batch["x"]
    fake = ctx.models["generator"](torch.randn(len(real), 2))
    ctx.optimizers["critic"].zero_grad()
    loss = critic_loss(ctx.models, real, fake.detach())
    ctx.backward(loss)
    ctx.optimizers["critic"].step()
    ctx.optimizers["generator"].zero_grad()
    told = ctx.models["critic"](fake)
    deceived = judged(told, torch.ones_like(told))
    ctx.backward(deceived)
    ctx.optimizers["generator"].step()
    return {"loss": loss, "deceived": deceived}


def gan_test(models: Any, batch: Any) -> Tensor:
    return critic_loss(models, batch["x"], models["generator"](torch.ones(len(batch["x"]), 2)))


def test_alternating_updates_are_those_of_the_plain_loop(tmp_path: Path) -> None:
    own = {"update": gan_update, "evaluate": gan_test, "optimizer": adams}
    curve, *_ = curve_of(Workload(name="gan", model=gan, data=PAIRS, **own), tmp_path)
    models = made(lambda: nn.ModuleDict(gan()))
    optimizers = adams(models, TrainSpec(lr=0.05))

    def update(rows: Tensor) -> Tensor:
        fake = models["generator"](torch.randn(len(rows), 2))
        loss = updated(optimizers["critic"], critic_loss(models, X[rows], fake.detach()))
        told = models["critic"](fake)
        updated(optimizers["generator"], judged(told, torch.ones_like(told)))
        return loss

    assert curve.losses == by_hand(update)
    assert "train/deceived" in curve.epochs[-1].metrics


def test_an_optimizer_that_asks_for_the_loss_again(tmp_path: Path) -> None:
    def closure_of(model: Any, optimizer: Any, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return closure

    def update(ctx: Any, batch: Any) -> Tensor:
        return ctx.optimizer.step(closure_of(ctx.model, ctx.optimizer, batch["x"], batch["y"]))  # type: ignore[no-any-return]

    def lbfgs(model: nn.Module, settings: TrainSpec) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(model.parameters(), lr=settings.start_lr, max_iter=4)

    own = {"update": update, "evaluate": own_step, "optimizer": lbfgs}
    workload = Workload(name="own", model=lambda: nn.Linear(6, 2), data=PAIRS, **own)
    curve, *_ = curve_of(workload, tmp_path, lr=0.5)
    model = made(lambda: nn.Linear(6, 2))
    optimizer: Any = lbfgs(model, TrainSpec(lr=0.5))
    assert curve.losses == by_hand(
        lambda rows: optimizer.step(closure_of(model, optimizer, X[rows], Y[rows]))
    )


@pytest.mark.parametrize("each", ["epoch", "step"])
def test_groups_and_a_schedule_of_the_users_own(each: str, tmp_path: Path) -> None:
    def optimizer_of(model: Any, settings: TrainSpec) -> Any:
        groups = [
            {"params": [p], "lr": settings.start_lr / (1 + p.dim())} for p in model.parameters()
        ]
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), each

    own = {"loss": F.cross_entropy, "optimizer": optimizer_of}
    curve, *_ = curve_of(Workload(name="own", model=net, data=TENSORS, **own), tmp_path)
    model = made(net)
    optimizer, schedule, _ = optimizer_of(model, TrainSpec(lr=0.05))

    def update(rows: Tensor) -> Tensor:
        loss = plain_update(model, optimizer, rows)
        if each == "step":
            schedule.step()
        return loss

    assert curve.losses == by_hand(update, schedule.step if each == "epoch" else lambda: None)


class Noisy(TorchDataset[tuple[Tensor, Tensor]]):
    """Augmented: what it gives for a row differs each time."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return X[row] + 0.1 * torch.randn(6), Y[row]


def noisy(workers: int = 0, **options: Any) -> Workload:
    loader: Any = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers, **options)
    data = Dataset("noisy", train=loader, test=Split(X, Y))
    return Workload(name="own", model=net, data=data, loss=F.cross_entropy)


def test_a_loader_gives_the_same_curve_with_any_number_of_workers(tmp_path: Path) -> None:
    alone = curve_of(noisy(), tmp_path)[0].losses
    assert curve_of(noisy(), tmp_path)[0].losses == alone
    assert curve_of(noisy(workers=2), tmp_path)[0].losses == alone
    assert len(alone) == 2 * 7, "the batch size is the trial's"
    assert len(curve_of(noisy(), tmp_path, batch_size=16)[0].losses) == 2 * 4
    assert len(curve_of(noisy(drop_last=True), tmp_path)[0].losses) == 2 * 6


def test_augmentation_differs_from_epoch_to_epoch_and_by_seed(tmp_path: Path) -> None:
    whole = loaded(Noisy(), "train", None, drop_last=False)
    batches = LoadedBatches(whole, 8, torch.device("cpu"))

    def inputs(seed: int, epoch: int) -> Tensor:
        found = torch.zeros(SIZE, 6)
        for piece in batches.epoch(seed, epoch):
            found[piece.epoch.cuts[piece.place]] = batches.gather(piece)[0]
        return found

    assert torch.equal(inputs(1, 1), inputs(1, 1))
    assert not torch.equal(inputs(1, 1), inputs(1, 2))
    assert not torch.equal(inputs(1, 1), inputs(2, 1))
    pieces = batches.epoch(1, 1)
    later = batches.epoch(1, 1, first=3)
    for piece in pieces[:3]:
        batches.gather(piece)
    assert torch.equal(batches.gather(pieces[3])[0], batches.gather(later[0])[0])


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(X, Y, strict=True))


def test_a_sampler_or_a_stream_of_the_users_own_says_what_an_epoch_is(tmp_path: Path) -> None:
    sampler = WeightedRandomSampler([1.0] * 10 + [0.0] * 40, num_samples=24)
    sampled: Any = DataLoader(Noisy(), batch_size=4, sampler=sampler)
    for given, size, num_batches in ((sampled, 8, 3), (Stream(), 8, 7), (Stream(), 25, 2)):
        data = Dataset("own", train=given, test=Split(X, Y))
        workload = Workload(name="own", model=net, data=data, loss=F.cross_entropy)
        losses = curve_of(workload, tmp_path, batch_size=size)[0].losses
        assert len(losses) == 2 * num_batches
        assert curve_of(workload, tmp_path, batch_size=size)[0].losses == losses


def test_the_last_batch_of_tensors_can_be_dropped(tmp_path: Path) -> None:
    def normed() -> nn.Module:
        """Fails with a batch of one."""
        return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    data = Dataset("pairs", Split(X[:49], Y[:49]), Split(X, Y), drop_last=True)
    workload = Workload(name="own", model=normed, data=data, loss=F.cross_entropy)
    assert len(curve_of(workload, tmp_path)[0].losses) == 2 * 6


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": net(), "loss": F.cross_entropy}, "model: is a Sequential, which all trials would"),
    ({}, "loss, step, update: has none of them, must have one of them"),
    ({"loss": F.cross_entropy, "step": own_step}, "has loss and step, must have one of them"),
    ({"loss": 3}, "loss: is a int, must be a function"),
    ({"loss": F.cross_entropy, "data": [1]}, "data: is a list, must be a trainlab.Dataset"),
    ({"update": gan_update, "optimizer": adams}, "update: needs evaluate beside it"),
    ({"update": gan_update, "evaluate": gan_test}, "update: needs optimizer beside it"),
    ({"loss": F.cross_entropy, "evaluate": gan_test}, "evaluate: goes with step or update"),
    ({"step": own_step, "prepare": torch.sqrt}, "prepare: goes with loss"),
]


def test_a_workload_that_contradicts_itself_says_so() -> None:
    for given, told in MISTAKES:
        with pytest.raises(WorkloadError, match=f"own: .*{told.partition('(')[0]}"):
            Workload(**{"name": "own", "model": net, "data": TENSORS, **given})


STEPS: list[tuple[Any, str]] = [
    (lambda model, batch: None, "step: gave None, must give the loss as a tensor"),
    (lambda model, batch: (1, 2), "step: gave a tuple, must give the loss"),
    (lambda model, batch: {"nll": 1.0}, "step: gave a mapping with nll; it must have `loss`"),
    (lambda model, batch: model(batch["x"]), r"step: gave shape \(8, 2\), must be one number"),
    (
        lambda model, batch: {"loss": model(batch["x"]).sum(), "scores": model(batch["x"])},
        r"step.scores: gave shape \(8, 2\), must be one number",
    ),
]


def test_what_a_step_gives_is_looked_at(tmp_path: Path) -> None:
    for step, told in STEPS:
        with pytest.raises(WorkloadError, match=told):
            curve_of(Workload(name="own", model=net, data=PAIRS, step=step), tmp_path)


def test_several_optimizers_need_an_update_of_ones_own(tmp_path: Path) -> None:
    def halves(model: Any, settings: TrainSpec) -> Any:
        return {str(n): torch.optim.SGD(model[n].parameters(), lr=0.1) for n in (0, 3)}

    workload = Workload(name="own", model=net, data=TENSORS, loss=F.cross_entropy, optimizer=halves)
    with pytest.raises(WorkloadError, match="optimizer: gave 2, must give one"):
        curve_of(workload, tmp_path)


def test_a_workloads_own_optimizer_is_named_instead_of_the_settings_one(
    tiny_file: Path, trainlab: Verb, tmp_path: Path
) -> None:
    own = "tiny = dataclasses.replace(tiny, optimizer=lambda m, s: torch.optim.SGD(m.parameters()))"
    tiny_file.write_text(f"{tiny_file.read_text()}import dataclasses\n{own}\n")
    done = trainlab("run", f"{tiny_file}:tiny", "--out", "r", "--device", "cpu")
    assert "batch 10, the workload's own optimizer, fp32" in done.stdout
    assert "optimizer_code" not in RunFolder(tmp_path / "r").trials()[0].resolved
