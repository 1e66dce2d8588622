"""Metrics that a script writes for itself."""

import csv
import os
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

import trainlab
from own_loop import OwnLoop
from trainlab.watching.own_metrics import CsvColumns, metric_of, number_of


def test_a_tag_becomes_a_metric() -> None:
    metrics = {
        "Accuracy/test": "test/accuracy",
        "val_acc": "val/acc",
        "Loss/validation": "val/loss",
        "train_loss_epoch": "train/loss_epoch",
        "Eval/BLEU score": "test/bleu_score",
        "lr-SGD": "lr_sgd",
        "test": "test/value",
        "epoch": None,
        "train/epoch": None,
        "trainer/global_step": None,
        "//": None,
    }
    assert {tag: metric_of(tag) for tag in metrics} == metrics


def test_what_holds_no_single_number_is_none() -> None:
    assert number_of("0.5") is None
    assert number_of(True) is None
    assert number_of({"a": 1.0}) is None
    assert number_of(10**400) is None
    assert number_of(3) == 3.0


def test_scalars_for_tensorboard_are_metrics_without_being_asked_for(tmp_path: Path) -> None:
    writer, before = SummaryWriter(str(tmp_path / "own")), vars(SummaryWriter)["add_scalar"]
    numbers = iter(range(100))

    def write(name: str, value: float) -> None:
        number = next(numbers)
        if number % 5 == 4:  # after the four steps of an epoch
            writer.add_scalar("Accuracy/test", value, number)
            writer.add_scalars("Loss", {"val": 0.25, "train": 5.0}, number)

    with trainlab.watch(out=tmp_path / "run") as lab:
        told = []
        OwnLoop().train(told=lambda name, value: (told.append(value), write(name, value)))  # type: ignore[func-returns-value]
    lines = lab.run.trial("learn-seed1").epochs()
    assert [line["test/accuracy"] for line in lines] == [told[4], told[9]]
    assert [line["val/loss"] for line in lines] == [0.25, 0.25]
    assert [line["train/loss_logged"] for line in lines] == [5.0, 5.0]
    assert max(line["train/loss"] for line in lines) < 2
    # What we write for TensorBoard ourselves is not heard: it has tags of its own.
    assert not [name for line in lines for name in line if "over_samples" in name]
    assert vars(SummaryWriter)["add_scalar"] is before


def test_new_values_of_a_csv_column_are_told(tmp_path: Path) -> None:
    path, told = tmp_path / "log.csv", list[tuple[str, float]]()
    path.write_text("epoch,val_acc\n0,0.1\n")
    columns = CsvColumns({"accuracy": (str(path), "val_acc")}, lambda *one: told.append(one))
    columns.look()
    assert told == []  # of an earlier run
    path.write_text("epoch,val_acc\n0,0.1\n1,0.5\n2,\n3,0.75\n")
    columns.look()
    columns.look()
    assert told == [("accuracy", 0.5), ("accuracy", 0.75)]
    path.write_text("epoch,val_acc\n1,0.25\n")
    columns.look()
    assert told[2:] == [("accuracy", 0.25)]


def test_a_csv_file_begun_anew_is_this_runs_though_an_earlier_one_wrote_the_same(
    tmp_path: Path,
) -> None:
    path, told = tmp_path / "log.csv", list[float]()
    path.write_text("acc\n0.25\n0.5\n")
    os.utime(path, (1e9, 1e9))
    columns = CsvColumns({"accuracy": (str(path), "acc")}, lambda _, value: told.append(value))
    for text in (
        "acc\n0.25\n0.5\n",
        "acc\n0.25\n0.5\n",
        "acc\n0.25\n0.5\nnan\n",
        "acc\n0.25\n0.5\nnan\n1\n",
    ):
        path.write_text(text)
        columns.look()
    assert [value for value in told if value == value] == [0.25, 0.5, 1]


def test_the_last_look_finds_what_a_file_left_open_has_not_written_yet(tmp_path: Path) -> None:
    path, told = tmp_path / "log.csv", list[float]()
    columns = CsvColumns({"accuracy": (str(path), "acc")}, lambda _, value: told.append(value))
    writer = csv.writer(path.open("w"))
    writer.writerows([["acc"], [0.25], [0.5]])
    columns.look()
    assert told == []
    columns.look(is_last=True)
    assert told == [0.25, 0.5]
