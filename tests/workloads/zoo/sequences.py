"""Text and other series: state that is carried, padding, attention, teacher forcing."""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from trainlab import Dataset
from zoo.specimen import drawn, kind

WORDS = 12


def text(count: int, seed: int) -> Tensor:
    """Words that mostly follow each other in one order."""
    draw = drawn(seed)
    steps = 1 + (torch.rand(count, generator=draw) < 0.1).long()
    return 1 + steps.cumsum(0) % (WORDS - 1)


class Windows:
    """Columns of text in windows that follow each other."""

    def __init__(self, count: int, seed: int) -> None:
        self.columns = text(count, seed).view(4, -1).t()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self.columns) - 6, 6):
            yield self.columns[start : start + 6], self.columns[start + 1 : start + 7]


class WordModel(nn.Module):
    """An LSTM over words whose state is handed in and out."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width)
        self.scores = nn.Linear(width, WORDS)

    def forward(self, words: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, state = self.lstm(self.words(words), state)
        return self.scores(hidden), state


def carried_step(model: nn.Module, batch: tuple[Tensor, Tensor], carried: dict[str, Any]) -> Any:
    """The state goes on, its gradient does not."""
    scores, state = model(batch[0], carried.get("state"))
    carried["state"] = tuple(part.detach() for part in state)
    loss = F.cross_entropy(scores.flatten(0, 1), batch[1].flatten())
    return {"loss": loss, "perplexity": loss.detach().exp()}


def reviews(count: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Series of 2 to 8 words; the class is whether high words prevail."""
    draw = drawn(seed)
    lengths = torch.randint(2, 9, (count,), generator=draw).tolist()
    rows = [torch.randint(1, WORDS, (n,), generator=draw) for n in lengths]
    return [(words, (words.float().mean() > WORDS / 2).long()) for words in rows]


def padded(samples: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Rows of one length, and how long each was."""
    words, labels = zip(*samples, strict=True)
    lengths = torch.tensor([len(one) for one in words])
    return {
        "words": pad_sequence(list(words), batch_first=True),
        "lengths": lengths,
        "labels": torch.stack(labels),
    }


class Reader(nn.Module):
    """An LSTM over packed series."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.scores = nn.Linear(16, 2)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            self.words(words), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.scores(self.lstm(packed)[1][0][-1])


def padded_step(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gives outputs for the metric too."""
    scores = model(batch["words"], batch["lengths"])
    loss = F.cross_entropy(scores, batch["labels"])
    return {"loss": loss, "outputs": scores, "targets": batch["labels"]}


def is_right(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(1) == targets


def tokenized(count: int, seed: int) -> list[dict[str, Tensor]]:
    """Rows of 8 words as mappings, as tokenizers give them."""
    rows = text(count * 8, seed).view(count, 8)
    return [{"input_ids": row, "attention_mask": torch.ones(8)} for row in rows]


class Attention(nn.Module):
    """Several heads, which look back only."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """One block over words and positions; words go in and out by the same weights."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, width), nn.Embedding(8, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.scores = nn.Linear(width, WORDS, bias=False)
        nn.init.normal_(self.words.weight, std=1 / math.sqrt(width))
        self.scores.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.positions.weight[: words.shape[1]]
        x = x + self.attention(self.norm1(x))
        return self.scores(x + self.mlp(self.norm2(x)))


def causal_step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    words = batch["input_ids"]
    scores = model(words[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten())


class Translator(nn.Module):
    """A GRU reads, another writes: what it should have written is handed to it in training, its own words
    in a test."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.reads, self.writes = (nn.GRU(width, width, batch_first=True) for _ in range(2))
        self.scores = nn.Linear(width, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        _, state = self.reads(self.words(source))
        if self.training:
            start = torch.zeros_like(target[:, :1])
            hidden, _ = self.writes(self.words(torch.cat([start, target[:, :-1]], 1)), state)
            return self.scores(hidden)
        word, written = torch.zeros_like(target[:, :1]), []
        for _ in range(target.shape[1]):
            hidden, state = self.writes(self.words(word), state)
            written.append(self.scores(hidden))
            word = written[-1].argmax(-1)
        return torch.cat(written, 1)


def translation_step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    source = batch["input_ids"][:, :4]
    target = source.flip(1)
    return F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())


SENTENCES = Dataset("sentences", tokenized(64, 1), tokenized(32, 2))

KINDS = (
    kind(
        "lstm-language-model",
        WordModel,
        Dataset("text", Windows(400, 1), Windows(200, 2)),
        "lstm:activation:std",
        "lstm:grad:norm",
        step=carried_step,
        vary={"clip_grad_norm": [0.25, 1.0]},
        settings={"lr": 0.02},
        is_fast=True,
    ),
    kind(
        "padded-lstm",
        Reader,
        Dataset("reviews", reviews(64, 1), reviews(32, 2), collate_fn=padded),
        "scores:grad_output:norm",
        step=padded_step,
        metrics={"right": is_right},
        settings={"epochs": 2},
    ),
    kind(
        "gpt",
        Transformer,
        SENTENCES,
        "attention.mixed:activation:std",
        "mlp.*:grad:norm",
        step=causal_step,
        vary={"heads": [1, 2]},
        settings={"lr": 0.01},
    ),
    kind("seq2seq", Translator, SENTENCES, "writes:activation:std", step=translation_step),
)
