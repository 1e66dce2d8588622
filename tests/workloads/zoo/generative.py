"""Models that learn what data looks like."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab import Dataset, Split
from zoo.specimen import drawn, kind, points, splits


def same(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points near a plane in 8 dimensions, to be given back."""
    draw = drawn(seed)
    basis = torch.randn(2, 8, generator=drawn(0))
    x = torch.randn(count, 2, generator=draw) @ basis
    x = x + 0.05 * torch.randn(count, 8, generator=draw)
    return x, x


POINTS = Dataset("points", list(same(64, 1)[0]), list(same(32, 2)[0]))
"""The points alone: a batch is one tensor."""


def autoencoder(code: int = 2) -> nn.Module:
    """Through a narrow layer and back."""
    return nn.Sequential(
        *(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, code)),
        *(nn.Linear(code, 16), nn.Tanh(), nn.Linear(16, 8)),
    )


class VariationalAutoencoder(nn.Module):
    """A code that is drawn; gives what the loss needs."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def elbo_step(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Both parts are logged."""
    made, mean, log_variance = model(x)
    error = F.mse_loss(made, x)
    distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
    return {"loss": error + 0.01 * distance, "error": error, "distance": distance}


def adversaries(width: int = 16) -> dict[str, nn.Module]:
    return {
        "generator": nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 8)),
        "critic": nn.Sequential(nn.Linear(8, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)),
    }


def adams(models: nn.ModuleDict, settings: Any) -> dict[str, torch.optim.Optimizer]:
    return {
        name: torch.optim.Adam(one.parameters(), lr=settings.start_lr, betas=(0.5, 0.9))
        for name, one in models.items()
    }


def generated(models: nn.ModuleDict, real: Tensor) -> Tensor:
    """As many as there are real ones."""
    return models["generator"](torch.randn(len(real), 2, device=real.device))


def judged(critic: nn.Module, x: Tensor, is_real: bool) -> Tensor:
    scores = critic(x)
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(is_real)))


def gan_update(ctx: Any, real: Tensor) -> dict[str, Tensor]:
    """First the critic, then the generator."""
    critic, made = ctx.models["critic"], generated(ctx.models, real)
    ctx.optimizers["critic"].zero_grad()
    loss = judged(critic, real, True) + judged(critic, made.detach(), False)
    ctx.backward(loss)
    ctx.optimizers["critic"].step()
    ctx.optimizers["generator"].zero_grad()
    deceived = judged(critic, made, True)
    ctx.backward(deceived)
    ctx.optimizers["generator"].step()
    return {"loss": loss, "generator": deceived}


def gan_test(models: nn.ModuleDict, real: Tensor) -> dict[str, Tensor]:
    made = generated(models, real)
    loss = judged(models["critic"], real, True) + judged(models["critic"], made, False)
    return {"loss": loss, "spread": made.std()}


def slope_penalty(critic: nn.Module, real: Tensor, made: Tensor) -> Tensor:
    """How far the critic's slope between real and made is from 1: a gradient that is differentiated."""
    between = torch.lerp(made, real, torch.rand(len(real), 1, device=real.device)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


def penalised_update(ctx: Any, real: Tensor) -> dict[str, Tensor]:
    """A Wasserstein critic with the penalty, then the generator."""
    critic, made = ctx.models["critic"], generated(ctx.models, real)
    penalty = slope_penalty(critic, real, made.detach())
    loss = critic(made.detach()).mean() - critic(real).mean() + 10 * penalty
    ctx.optimizers["critic"].zero_grad()
    ctx.backward(loss)
    ctx.optimizers["critic"].step()
    ctx.optimizers["generator"].zero_grad()
    ctx.backward(-critic(made).mean())
    ctx.optimizers["generator"].step()
    return {"loss": loss, "penalty": penalty}


def penalised_test(models: nn.ModuleDict, real: Tensor) -> Tensor:
    """The distance as the critic sees it; a test has no gradients and so no penalty."""
    made = generated(models, real)
    return models["critic"](made).mean() - models["critic"](real).mean()


class Denoiser(nn.Module):
    """Tells the noise in a point from the point and the time."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(10, width), nn.Linear(width, 8)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angle = math.pi * time
        return self.out(F.silu(self.into(torch.cat([x, angle.sin(), angle.cos()], 1))))


def denoising_step(model: nn.Module, x: Tensor) -> Tensor:
    """Noise and time are drawn in every step."""
    time, noise = torch.rand(len(x), 1, device=x.device), torch.randn_like(x)
    kept = (0.5 * math.pi * time).cos()
    return F.mse_loss(model(kept * x + (1 - kept.square()).sqrt() * noise, time), noise)


def two_views(count: int, seed: int) -> Split:
    """The same points seen twice, each time with other noise."""
    x, _ = points(count, seed)
    views = x[:, None] + 0.3 * torch.randn(count, 2, 8, generator=drawn(seed + 10))
    return Split(views, torch.arange(count))


class Temperature(nn.Module):
    """A loss module with a temperature of its own, which is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, codes: Tensor) -> Tensor:
        first, second = F.normalize(codes, dim=-1).unbind(1)
        scores = self.log_scale.exp() * first @ second.t()
        own = torch.arange(len(scores), device=scores.device)
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.t(), own)) / 2


def encoder_and_temperature() -> dict[str, nn.Module]:
    """The loss module beside the encoder, so that the optimizer has its parameter too."""
    encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return {"encoder": encoder, "loss": Temperature()}


def contrast_step(models: Any, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """Each view must find its partner in the batch."""
    loss = models["loss"](models["encoder"](batch[0]))
    return {"loss": loss, "scale": models["loss"].log_scale.exp()}


VIEWS = Dataset("views", two_views(64, 1), two_views(32, 2))

KINDS = (
    kind(
        "autoencoder",
        autoencoder,
        Dataset("plane", *splits(same)),
        "2:activation:std",
        loss=F.mse_loss,
        metrics={},
        vary={"code": [1, 2]},
        settings={"lr": 0.01},
    ),
    kind("vae", VariationalAutoencoder, POINTS, "decoder:grad_output:norm", step=elbo_step),
    kind(
        "gan",
        adversaries,
        POINTS,
        "critic.*:grad:norm",
        update=gan_update,
        evaluate=gan_test,
        optimizer=adams,
        learns=False,
        is_fast=True,
    ),
    kind(
        "gradient-penalty",
        adversaries,
        POINTS,
        "critic.*:grad:norm",
        update=penalised_update,
        evaluate=penalised_test,
        optimizer=adams,
        learns=False,
    ),
    kind(
        "diffusion",
        Denoiser,
        POINTS,
        "out:activation:std",
        step=denoising_step,
        settings={"epochs": 4},
    ),
    kind(
        "contrastive",
        encoder_and_temperature,
        VIEWS,
        "loss.log_scale:weight:mean",
        step=contrast_step,
        settings={"epochs": 2},
    ),
)
