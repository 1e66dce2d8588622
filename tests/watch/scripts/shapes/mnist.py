"""A convolutional network on images of ten classes."""

import sys

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, size, seed, transform):
        prototypes = torch.rand(10, 7, 7, generator=torch.Generator().manual_seed(0))
        draw = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(10, (size,), generator=draw)
        clean = F.interpolate(prototypes[self.targets].unsqueeze(1), scale_factor=4).squeeze(1)
        noisy = clean + 1.1 * torch.randn(clean.shape, generator=draw)
        self.images = (noisy.clamp(0, 1) * 255).to(torch.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.transform(self.images[index]), int(self.targets[index])


def to_normalized(image):
    return (image.unsqueeze(0).float() / 255 - 0.5) / 0.35


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(16 * 12 * 12, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def main():
    torch.manual_seed(1)
    accelerator = torch.accelerator.current_accelerator() if torch.cuda.is_available() else None
    device, options = accelerator or torch.device("cpu"), {}
    if accelerator is not None:
        options = {"num_workers": 1, "pin_memory": True, "shuffle": True}
    train_loader = DataLoader(Digits(1280, 1, to_normalized), batch_size=64, **options)
    test_loader = DataLoader(Digits(1000, 2, to_normalized), batch_size=1000, **options)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for _ in range(int(sys.argv[1])):
        model.train()
        for data, target in train_loader:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            print("loss", loss.item())
        model.eval()
        correct = 0
        with torch.no_grad():
            for data, target in test_loader:
                output = model(data.to(device))
                correct += output.argmax(dim=1).eq(target.to(device)).sum().item()
        print(f"Accuracy: {correct}/{len(test_loader.dataset)}")
        scheduler.step()


if __name__ == "__main__":
    main()
