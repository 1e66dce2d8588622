"""An LSTM language model, its parameters updated by hand."""

import argparse
import math
import time
from pathlib import Path

import torch
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, num_tokens, size, layers, dropout):
        super().__init__()
        self.layers, self.size = layers, size
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(num_tokens, size)
        self.rnn = nn.LSTM(size, size, layers, dropout=dropout)
        self.decoder = nn.Linear(size, num_tokens)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, inputs, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(inputs)), hidden)
        decoded = self.decoder(self.drop(output))
        return torch.log_softmax(decoded.view(-1, decoded.size(-1)), dim=1), hidden

    def init_hidden(self, batch_size):
        weight = next(self.parameters())
        shape = (self.layers, batch_size, self.size)
        return weight.new_zeros(shape), weight.new_zeros(shape)


def made_up_text(length, num_tokens, seed):
    """Words of which each has four likely successors."""
    successors = torch.randint(
        num_tokens, (num_tokens, 4), generator=torch.Generator().manual_seed(0)
    ).tolist()
    choices = torch.randint(4, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    words = [0]
    for choice in choices:
        words.append(successors[words[-1]][choice])
    return torch.tensor(words)


def batchify(data, batch_size):
    rows = data.size(0) // batch_size
    return data[: rows * batch_size].view(batch_size, -1).t().contiguous()


def repackage_hidden(hidden):
    return tuple(state.detach() for state in hidden)


def get_batch(source, i, bptt):
    length = min(bptt, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].view(-1)


def evaluate(args, model, criterion, source):
    model.eval()
    total = 0.0
    hidden = model.init_hidden(source.size(1))
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i, args.bptt)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)


def train(args, model, criterion, source, lr, epoch, losses):
    model.train()
    total, start = 0.0, time.time()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, source.size(0) - 1, args.bptt)):
        data, targets = get_batch(source, i, args.bptt)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        losses.append(loss.item())
        total += loss.item()
        if batch % args.log_interval == 0 and batch > 0:
            mean, ms = total / args.log_interval, (time.time() - start) * 1000 / args.log_interval
            print(
                f"| epoch {epoch:3d} | {batch:5d}/{len(source) // args.bptt:5d} batches | lr {lr:02.2f} "
                f"| ms/batch {ms:5.2f} | loss {mean:5.2f} | ppl {math.exp(mean):8.2f}"
            )
            total, start = 0.0, time.time()
        if args.dry_run:
            break


def main():
    parser = argparse.ArgumentParser(description="A language model of made-up text")
    parser.add_argument("--emsize", type=int, default=64)
    parser.add_argument("--nlayers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=10)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--bptt", type=int, default=20)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1111)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--dry-run", action="store_true", help="one batch per epoch")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_data = batchify(made_up_text(16_000, 100, 1), args.batch_size)
    val_data = batchify(made_up_text(4000, 100, 2), 10)
    model = RNNModel(100, args.emsize, args.nlayers, args.dropout)
    criterion = nn.NLLLoss()
    lr, best, losses = args.lr, None, []
    for epoch in range(1, args.epochs + 1):
        start = time.time()
        train(args, model, criterion, train_data, lr, epoch, losses)
        val_loss = evaluate(args, model, criterion, val_data)
        print(
            f"| end of epoch {epoch:3d} | time: {time.time() - start:5.2f}s "
            f"| valid loss {val_loss:5.2f} | valid ppl {math.exp(val_loss):8.2f}"
        )
        if best is None or val_loss < best:
            best = val_loss
        else:
            lr /= 4.0
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
