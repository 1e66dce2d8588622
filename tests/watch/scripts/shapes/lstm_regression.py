"""Sine waves continued by two LSTM cells, trained with L-BFGS on all data at once."""

import sys

import torch
from torch import nn, optim


class Sequence(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, inputs, future=0):
        outputs, steps = [], inputs.split(1, dim=1)
        h1, c1, h2, c2 = inputs.new_zeros(4, inputs.size(0), self.hidden)
        for number in range(len(steps) + future):
            step = steps[number] if number < len(steps) else outputs[-1]
            h1, c1 = self.lstm1(step, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            outputs.append(self.linear(h2))
        return torch.cat(outputs, dim=1)


torch.manual_seed(1)
shifts = torch.randint(-40, 40, (20, 1)).double()
waves = torch.sin((torch.arange(30).double() + shifts) / 5)
model = Sequence().double()
criterion = nn.MSELoss()
optimizer = optim.LBFGS(model.parameters(), lr=0.8)


def closure():
    optimizer.zero_grad()
    loss = criterion(model(waves[3:, :-1]), waves[3:, 1:])
    print("loss", loss.item())
    loss.backward()
    return loss


for _ in range(int(sys.argv[1])):
    optimizer.step(closure)
    with torch.no_grad():
        predicted = model(waves[:3, :-1], future=20)
        print("test loss:", criterion(predicted[:, :-20], waves[:3, 1:]).item())
