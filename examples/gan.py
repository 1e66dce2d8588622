"""An update of one's own: two networks and two optimizers, trained against each other."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab import Dataset, Workload


class Ring(torch.utils.data.Dataset):
    """Points near a circle."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        angle = 6.2832 * torch.rand(count, generator=draw)
        self.points = torch.stack([angle.cos(), angle.sin()], dim=1)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"point": self.points[row] + 0.05 * torch.randn(2)}  # drawn anew in every epoch


def models(hidden: int = 64) -> dict[str, nn.Module]:
    """By the names that `ctx.models` has them under."""
    return {
        "generator": nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2)),
        "critic": nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 1)),
    }


def optimizers(models: nn.ModuleDict, settings) -> dict[str, torch.optim.Optimizer]:
    """One for each model, with the learning rate of the trial."""
    make = torch.optim.Adam
    return {name: make(one.parameters(), lr=settings.start_lr) for name, one in models.items()}


def judged(models: nn.ModuleDict, points: Tensor, is_real: bool) -> Tensor:
    """How far the critic is from telling these points for what they are."""
    scores = models["critic"](points)
    wanted = torch.ones_like(scores) if is_real else torch.zeros_like(scores)
    return F.binary_cross_entropy_with_logits(scores, wanted)


def update(ctx, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """First the critic, then the generator."""
    real = batch["point"]
    made = ctx.models["generator"](torch.randn(len(real), 4, device=ctx.device))
    ctx.optimizers["critic"].zero_grad()
    critic = judged(ctx.models, real, True) + judged(ctx.models, made.detach(), False)
    ctx.backward(critic)
    ctx.optimizers["critic"].step()
    ctx.optimizers["generator"].zero_grad()
    generator = judged(ctx.models, made, True)
    ctx.backward(generator)
    ctx.optimizers["generator"].step()
    return {"loss": critic, "generator": generator}


def evaluate(models: nn.ModuleDict, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """On the test data; besides the loss, how far what is generated lies from the circle."""
    real = batch["point"]
    made = models["generator"](torch.randn(len(real), 4, device=real.device))
    loss = judged(models, real, True) + judged(models, made, False)
    return {"loss": loss, "off_circle": (made.norm(dim=1) - 1).abs().mean()}


workload = Workload(
    name="ring",
    model=models,
    data=Dataset("ring", train=Ring(2000, seed=1), test=Ring(500, seed=2)),
    update=update,
    evaluate=evaluate,
    optimizer=optimizers,
    objective="off_circle:min",
    defaults={"epochs": 20, "batch_size": 50, "lr": 0.001},
)
