"""A tiny BERT, from random weights, trained by the Trainer of Hugging Face."""

import sys

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    """Sequences of made-up words; the label says whether word 2 is among them."""

    def __init__(self, size, seed, length=16, vocabulary=40):
        draw = torch.Generator().manual_seed(seed)
        self.words = torch.randint(2, vocabulary, (size, length), generator=draw)
        self.words[:, 0] = 1
        self.labels = (self.words == 2).any(dim=1).long()

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words, label = self.words[index], self.labels[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": label}


class LoggingTrainer(Trainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        print("loss", loss.item())
        return loss


torch.manual_seed(1)
sizes = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 64, "num_labels": 2}
layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16}
batches = {"per_device_train_batch_size": 32, "per_device_eval_batch_size": 64}
quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
trainer = LoggingTrainer(
    model=BertForSequenceClassification(BertConfig(**sizes, **layers)),
    args=TrainingArguments(
        output_dir="bert-out",
        num_train_epochs=int(sys.argv[1]),
        learning_rate=2e-3,
        eval_strategy="epoch",
        logging_steps=10,
        use_cpu=True,
        seed=1,
        **batches,
        **quiet,
    ),
    train_dataset=Sentences(1024, 1),
    eval_dataset=Sentences(256, 2),
)
trainer.train()
trainer.evaluate()
