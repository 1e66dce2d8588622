"""Sine waves continued by two LSTM cells, trained with L-BFGS on all data at once."""

import argparse
from pathlib import Path

import torch
from torch import nn, optim


class Sequence(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, inputs, future=0):
        outputs = []
        h1, c1, h2, c2 = (
            torch.zeros(inputs.size(0), self.hidden, dtype=inputs.dtype) for _ in range(4)
        )
        for step in inputs.split(1, dim=1):
            h1, c1 = self.lstm1(step, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            outputs.append(self.linear(h2))
        for _ in range(future):
            h1, c1 = self.lstm1(outputs[-1], (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            outputs.append(self.linear(h2))
        return torch.cat(outputs, dim=1)


def main():
    parser = argparse.ArgumentParser(description="Predict the future of sine waves")
    parser.add_argument("--steps", type=int, default=5, help="updates, each of many evaluations")
    parser.add_argument("--hidden", type=int, default=24)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    shifts = torch.randint(-40, 40, (20, 1)).double()
    waves = torch.sin((torch.arange(args.length).double() + shifts) / 5)
    inputs, target = waves[3:, :-1], waves[3:, 1:]
    test_inputs, test_target = waves[:3, :-1], waves[:3, 1:]

    model = Sequence(args.hidden).double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(model.parameters(), lr=args.lr)
    losses = []
    for step in range(args.steps):
        print("STEP:", step)

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(inputs), target)
            print("loss:", loss.item())
            losses.append(loss.item())
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            future = 20
            predicted = model(test_inputs, future=future)
            print("test loss:", criterion(predicted[:, :-future], test_target).item())
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
