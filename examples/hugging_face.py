"""A model of Hugging Face's transformers: batches are mappings, and the model gives its own loss.

    pip install transformers
    trainlab run examples/hugging_face.py:workload --vary lr=0.001,0.0003 --seeds 3

The model is made from a configuration, so that nothing is fetched. A pretrained one is as easy:
`AutoModelForSequenceClassification.from_pretrained(...)` in `model`, and its tokenizer in `data`.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset
from transformers import BertConfig, BertForSequenceClassification

from trainlab import Dataset, Workload

GOOD = ["fine", "great", "lovely", "clever"]
BAD = ["dull", "poor", "awful", "stupid"]
OTHER = ["the", "film", "was", "a", "very", "story", "and", "so"]
WORDS = {word: number for number, word in enumerate(["[pad]", *GOOD, *BAD, *OTHER])}
LENGTH = 10


class Reviews(TorchDataset):
    """Made-up reviews of 5 to 10 words, one of which judges; as a tokenizer would give them."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)

        def pick(words: list[str]) -> int:
            return WORDS[words[int(torch.randint(len(words), (), generator=draw))]]

        self.labels = torch.randint(2, (count,), generator=draw)
        self.rows = torch.zeros(count, LENGTH, dtype=torch.long)
        for row, label in zip(self.rows, self.labels.tolist(), strict=True):
            length = int(torch.randint(5, LENGTH + 1, (), generator=draw))
            row[:length] = torch.tensor([pick(OTHER) for _ in range(length)])
            row[int(torch.randint(length, (), generator=draw))] = pick(GOOD if label else BAD)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        words = self.rows[row]
        return {
            "input_ids": words,
            "attention_mask": (words != WORDS["[pad]"]).long(),
            "labels": self.labels[row],
        }


def model(hidden: int = 32, layers: int = 2, dropout: float = 0.1) -> nn.Module:
    """A small BERT with fresh weights."""
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(WORDS),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=2 * hidden,
            max_position_embeddings=LENGTH,
            hidden_dropout_prob=dropout,
            num_labels=2,
        )
    )


def step(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's own loss; its logits are for the metric."""
    given = model(**batch)
    return {"loss": given.loss, "outputs": given.logits, "targets": batch["labels"]}


workload = Workload(
    name="reviews",
    model=model,
    data=Dataset("reviews", train=Reviews(600, seed=1), test=Reviews(200, seed=2)),
    step=step,
    metrics={"accuracy": lambda outputs, targets: outputs.argmax(1) == targets},
    defaults={"epochs": 4, "batch_size": 20, "optimizer": "adamw", "lr": 0.001},
)
