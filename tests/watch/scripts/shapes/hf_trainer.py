"""A tiny BERT, from random weights, trained by the Trainer of Hugging Face."""

import argparse
from pathlib import Path

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
        words = self.words[index]
        return {
            "input_ids": words,
            "attention_mask": torch.ones_like(words),
            "labels": self.labels[index],
        }


class LoggingTrainer(Trainer):
    """Keeps every training loss."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.train_losses = []

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.train_losses.append(loss.item())
        return loss


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser(description="Train a tiny BERT")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output-dir", default="bert-out")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    config = BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=2,
    )
    trainer = LoggingTrainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir=args.output_dir,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=64,
            learning_rate=args.lr,
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=10,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            seed=args.seed,
        ),
        train_dataset=Sentences(1024, 1),
        eval_dataset=Sentences(256, 2),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print(trainer.evaluate())
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in trainer.train_losses))


if __name__ == "__main__":
    main()
