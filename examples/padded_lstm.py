"""An LSTM over series of many lengths: a collate function pads them, and the model packs them again.

trainlab run examples/padded_lstm.py:workload --vary hidden=8,32 --seeds 3
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import Dataset as TorchDataset

from trainlab import Dataset, Workload

LETTERS = 6
PAD = 0


class Series(TorchDataset):
    """Of 3 to 12 letters; the class is whether the first letter comes again."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 13, (count,), generator=draw).tolist()
        self.rows = [torch.randint(1, LETTERS, (length,), generator=draw) for length in lengths]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        letters = self.rows[row]
        return letters, int((letters[1:] == letters[0]).any())


def padded(samples: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """Samples put together as a batch: rows of one length, and how long each was."""
    return {
        "letters": pad_sequence([letters for letters, _ in samples], True, PAD),
        "lengths": torch.tensor([len(letters) for letters, _ in samples]),
        "labels": torch.tensor([label for _, label in samples]),
    }


class Reader(nn.Module):
    """Reads each series to its own end: what was padded is never looked at."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 16, padding_idx=PAD)
        self.lstm = nn.LSTM(16, hidden, batch_first=True)
        self.scores = nn.Linear(hidden, 2)

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            self.letters(letters), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (last, _) = self.lstm(packed)
        return self.scores(last[-1])


def step(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """`outputs` and `targets` are for the metrics below."""
    scores = model(batch["letters"], batch["lengths"])
    loss = F.cross_entropy(scores, batch["labels"])
    return {"loss": loss, "outputs": scores, "targets": batch["labels"]}


workload = Workload(
    name="padded-lstm",
    model=Reader,
    data=Dataset("series", train=Series(2000, seed=1), test=Series(500, seed=2), collate_fn=padded),
    step=step,
    metrics={"accuracy": lambda outputs, targets: outputs.argmax(1) == targets},
    defaults={"epochs": 8, "batch_size": 50, "optimizer": "adam", "lr": 0.01},
)
