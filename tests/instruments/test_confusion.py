"""confusion.json: counts and mistakes of a test set, worked out by hand and held against the accuracy."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training import HomedSetup, MakeSetup
from trainlab import Dataset, Split
from trainlab.errors import RecordError
from trainlab.instruments.model_records import pictures_of, record_confusion
from trainlab.record.learning_record import ConfusionRecord
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Moments
from trainlab.train.engines import ENGINES
from trainlab.train.engines.engine import Member
from trainlab.train.loop import train
from trainlab.workloads.workload import Workload

TRUE = (0, 0, 0, 1, 1, 2, 2, 2)
SAID = (0, 1, 0, 1, 2, 2, 2, 0)
SURE = (0.9, 0.6, 0.5, 0.8, 0.95, 0.7, 0.9, 0.6)
"""The share given to the class that is said."""


class Fixed(nn.Module):
    """Says of each sample what stands in it: the class, and how sure it is of it. The rest goes to the next
    class, so that the shares of the right one are known too."""

    def __init__(self, form: str = "log") -> None:
        super().__init__()
        self.form, self.scale = form, nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        said, sure = inputs.flatten(1)[:, 0].long(), inputs.flatten(1)[:, 1]
        shares = torch.full((len(inputs), 3), 1e-30)
        rows = torch.arange(len(inputs))
        shares[rows, said], shares[rows, (said + 1) % 3] = sure, 1 - sure
        shares = shares + 0 * self.scale
        if self.form == "share":
            return shares
        return shares.log() + (5.0 if self.form == "score" else 0.0)


def known(form: str = "log") -> Workload:
    """Three classes, eight test samples."""
    inputs = torch.zeros(8, 1, 4, 4)
    inputs[:, 0, 0, 0], inputs[:, 0, 0, 1] = torch.tensor(SAID), torch.tensor(SURE)
    inputs[:, 0, 3, 3] = torch.linspace(0, 1, 8)
    split = Split(inputs, torch.tensor(TRUE))
    loss = F.nll_loss if form == "log" else F.cross_entropy
    data = Dataset("known", split, split, classes=("ant", "bee", "cat"))
    return Workload(name="known", model=lambda: Fixed(form), data=data, loss=loss)


def done(setups: Sequence[HomedSetup], engine: str = "eager") -> list[Progress]:
    """Trains together and records what was confused."""
    members = [Member(setup, Moments([]), Progress()) for setup in setups]
    session = ENGINES[engine].open(members)
    train(session, members)
    for number, (member, setup) in enumerate(zip(members, setups, strict=True)):
        record_confusion(session, number, member, setup.folder)
    return [member.progress for member in members]


def confused(setup: HomedSetup, engine: str = "eager") -> ConfusionRecord:
    done([setup], engine)
    return setup.folder.confusion.read()


def test_counts_and_mistakes_are_those_worked_out_by_hand(make_setup: MakeSetup) -> None:
    for form, size in (("log", 3), ("score", 8), ("share", 3)):
        found = confused(make_setup(workload=known(form), test_batch_size=size, epochs=1))
        assert found.counts == ((2, 1, 0), (0, 1, 1), (1, 0, 2))
        assert found.num_samples == 8 == sum(map(sum, found.counts))
        assert found.num_right == 5
        assert found.classes == ("ant", "bee", "cat")
        told = [(m.index, m.true, m.said) for m in found.worst]
        # Of two that are as sure the one with less for the truth comes first, then the earlier one.
        assert told == [(4, 1, 2), (1, 0, 1), (7, 2, 0)]
        assert [m.said_probability for m in found.worst] == pytest.approx([0.95, 0.6, 0.6])
        assert [m.true_probability for m in found.worst] == pytest.approx([0.0] * 3, abs=1e-9)


def test_pictures_are_the_stored_samples(make_setup: MakeSetup) -> None:
    setup = make_setup(workload=known(), epochs=1)
    stored = setup.dataset.test.inputs
    for mistake in confused(setup).worst:
        assert mistake.picture is not None
        assert (mistake.picture.height, mistake.picture.width) == (4, 4)
        pixels = np.frombuffer(mistake.picture.values, dtype=np.uint8).reshape(4, 4)
        image = stored[mistake.index, 0].numpy()
        low, high = (0.0, 2.0)  # of the pictures that are shown
        assert np.abs(pixels - (image - low) / (high - low) * 255).max() <= 0.5


@pytest.mark.parametrize(
    "engine",
    [pytest.param(one, marks=pytest.mark.slow if one != "lanes" else ()) for one in ENGINES],
)
def test_the_diagonal_is_the_accuracy_whatever_the_engine(
    engine: str, make_setup: MakeSetup
) -> None:
    setup = make_setup(test_batch_size=7, epochs=1, lr=0.001)
    (progress,) = done([setup], engine)
    found = setup.folder.confusion.read()
    assert found.num_samples == 31
    assert found.num_right == round(31 * progress.final["test/accuracy"])
    assert found.num_right / 31 == pytest.approx(progress.final["test/accuracy"], abs=1e-12)
    assert 0 < found.num_right < 31
    assert found.classes == ()
    assert all(mistake.picture is None for mistake in found.worst), "rows of numbers are no images"


def test_kept_weights_are_those_that_the_counts_are_of(make_setup: MakeSetup) -> None:
    asked: dict[str, Any] = {"keep_best": True, "epochs": 6, "lr": 1.0, "optimizer": "sgd"}
    setup = make_setup(**asked)
    half, other = (setup.dataset.train.part(torch.arange(40) + first) for first in (0, 40))
    data = Dataset("held", half, setup.dataset.test, val=other)
    setup = make_setup(workload=dataclasses.replace(setup.workload, data=data), **asked)
    (progress,) = done([setup])
    assert 0 < progress.best_epoch < 6, "or this shows nothing"
    found = setup.folder.confusion.read()
    assert found.num_right / 31 == pytest.approx(progress.final["test/accuracy"], abs=1e-12)
    setup.model.eval()
    said = setup.model(setup.dataset.test.inputs).argmax(-1)
    assert found.num_right == int((said == setup.dataset.test.targets).sum())


def test_what_has_no_classes_writes_nothing_and_says_nothing(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    letters = torch.randint(9, (20, 6), generator=torch.Generator().manual_seed(0))
    split = Split(letters[:, :-1], letters[:, 1:])
    next_letters = Workload(
        name="letters",
        model=lambda: nn.Embedding(9, 9),
        data=Dataset("d", split, split),
        loss=lambda outputs, targets: F.cross_entropy(outputs.flatten(0, 1), targets.flatten()),
        metrics={},
    )
    own_step = Workload(name="own", model=tiny.model, data=tiny.data, step=step)
    for workload in (next_letters, own_step):
        setup = make_setup(workload=workload, epochs=1, batch_size=5)
        done([setup])
        assert not setup.folder.confusion.exists()
        assert not [note for note in setup.notes if note.code == "confusion_failed"]


def test_a_full_disk_leaves_the_trial_done_with_a_note(
    make_setup: MakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RecordError("confusion.json: cannot be written: No space left on device")

    setup = make_setup(epochs=1)
    monkeypatch.setattr(type(setup.folder.confusion), "write", full)
    (progress,) = done([setup])
    assert progress.state == "done"
    (note,) = setup.notes
    assert note.code == "confusion_failed"
    assert "No space left" in str(note.values["reason"])


def test_only_what_looks_like_an_image_is_drawn() -> None:
    for shape, dtype, drawn in (
        ((28, 28), torch.uint8, (28, 28, 1)),
        ((3, 32, 24), torch.float32, (32, 24, 3)),
        ((3, 300, 150), torch.uint8, (64, 32, 3)),
    ):
        (picture,) = pictures_of([(torch.arange(int(np.prod(shape))) % 256).view(shape).to(dtype)])
        assert (picture.height, picture.width, picture.channels) == drawn
        assert len(picture.values) == np.prod(drawn)
    for shape in ((2, 8, 8), (64,), (3, 2, 2)):
        assert pictures_of([torch.zeros(shape)]) == []
    assert pictures_of([torch.full((1, 8, 8), 300)]) == []


def test_numbers_beside_whole_numbers_are_classes_only_where_something_says_so(
    make_setup: MakeSetup,
) -> None:
    def spread(outputs: Tensor, targets: Tensor) -> Tensor:
        """A loss of embeddings, or of quantiles."""
        return (outputs - targets.unsqueeze(1)).abs().mean()

    width = {"width": lambda o, t: o.std(dim=1)}
    accuracy = {"acc": lambda o, t: (o.argmax(1) == t).float()}
    workload = known("score")
    assert isinstance(workload.data, Dataset)
    unnamed = dataclasses.replace(workload, data=dataclasses.replace(workload.data, classes=()))
    for asked, loss, metrics, is_of_classes in (
        (unnamed, spread, width, False),
        (workload, spread, width, True),
        (unnamed, spread, accuracy, True),
        (unnamed, nn.CrossEntropyLoss(), {}, True),
    ):
        setup = make_setup(
            workload=dataclasses.replace(asked, loss=loss, metrics=metrics), epochs=1
        )
        done([setup])
        assert setup.folder.confusion.path.exists() == is_of_classes
