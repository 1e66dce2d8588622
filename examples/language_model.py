"""A step of one's own: a language model whose hidden state goes on from batch to batch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab import Dataset, Workload

TEXT = "the quick brown fox jumps over the lazy dog and the dog sleeps on. " * 60
LETTERS = sorted(set(TEXT))
CODES = torch.tensor([LETTERS.index(letter) for letter in TEXT])
LENGTH, COLUMNS = 16, 8


class Windows:
    """Columns of text, cut into windows that follow each other: (inputs, targets), LENGTH x COLUMNS."""

    def __init__(self, codes: Tensor) -> None:
        rows = len(codes) // COLUMNS
        self.columns = codes[: rows * COLUMNS].view(COLUMNS, rows).t()

    def __iter__(self):
        for start in range(0, len(self.columns) - LENGTH - 1, LENGTH):
            yield self.columns[start : start + LENGTH], self.columns[start + 1 : start + LENGTH + 1]


class Model(nn.Module):
    """One GRU layer over letters."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), 16)
        self.cell = nn.GRU(16, hidden)
        self.scores = nn.Linear(hidden, len(LETTERS))

    def forward(self, letters: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs, state = self.cell(self.embedding(letters), state)
        return self.scores(outputs), state


def step(model: nn.Module, batch: tuple[Tensor, Tensor], carried: dict) -> dict[str, Tensor]:
    """`carried` is empty at the start of an epoch and of a test, and saved in checkpoints."""
    inputs, targets = batch
    scores, state = model(inputs, carried.get("state"))
    carried["state"] = state.detach()
    loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten())
    return {"loss": loss, "bits": loss.detach() / torch.log(torch.tensor(2.0))}


workload = Workload(
    name="letters",
    model=Model,
    data=Dataset("letters", train=Windows(CODES[:3000]), test=Windows(CODES[3000:])),
    step=step,
    defaults={"epochs": 10, "optimizer": "adam", "lr": 0.01},
)
