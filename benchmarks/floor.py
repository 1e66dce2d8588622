"""How fast an update on this CPU could be at most: the kernels that it cannot do without, and nothing else.

    python -m benchmarks.floor [--rounds 9]

For each layer of the labs' networks the fastest way known to compute its output and both of its gradients,
and the compiled update of the optimizer, each called alone, again and again, with its numbers at hand; the
sum of these. What lies between them in a real update (activations, dropout, the loss, torch's own calls,
numbers that have to come from memory) is left out: no engine that calls these kernels can be faster. Beside
it the sample script's loop and ours, in turn. For lanes: eight trials' matrix products in one call.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.engines import Case, Way, ours, setup_of, timed
from benchmarks.script import script
from trainlab.train.setup import Setup
from trainlab.train.tuned import convolution, linear
from trainlab.train.tuned.layers import KINDS
from trainlab.train.tuned.model import sample_calls
from trainlab.train.tuned.tuning import tune_update

Work = Callable[[], object]
CASES = (
    Case("mnist-cnn", 1, 60, ()),
    Case("mnist-cnn", 64, 5, ()),
    Case("fashion-mlp", 32, 100, ()),
)
LANES = 8
CPU = torch.device("cpu")


def kernels(
    layer: nn.Module, shape: tuple[int, ...], needs_grad_input: bool
) -> Iterator[list[Work]]:
    """Of each part of a layer, the ways to compute it."""
    x = torch.randn(shape)
    with torch.no_grad():
        gradient = torch.randn_like(layer(x))
    if isinstance(layer, nn.Conv2d):
        padding = convolution._padding(layer)
        given = gradient, x, layer.weight, padding
        yield [
            partial(way, x, layer.weight, layer.bias, padding)
            for way in convolution.FORWARD.values()
        ]
        if needs_grad_input:
            yield [partial(way, *given) for way in convolution.GRAD_INPUT.values()]
        yield [partial(way, *given) for way in convolution.GRAD_WEIGHT.values()]
    elif isinstance(layer, nn.Linear):
        weight = layer.weight
        yield [partial(way, x, weight, layer.bias) for way in linear.PARTS["forward"].values()]
        if needs_grad_input:
            yield [partial(torch.mm, gradient, weight)]
        ways = linear.PARTS["grad_weight"].values()
        yield [*(partial(way, gradient, x) for way in ways), lambda: torch.mm(x.t(), gradient).t()]


def ms_of(work: Work) -> float:
    """The quickest of some calls: what else the machine does only adds to it."""
    work()
    took = [timed(CPU, lambda _: work(), 1) for _ in range(3)]
    calls = max(5, min(200, int(100 / max(took))))
    return min(*took, *(timed(CPU, lambda _: work(), 1) for _ in range(calls)))


def floor_ms(setup: Setup) -> tuple[float, float]:
    """Of the layers, and of the optimizer's update."""
    inputs = setup.workload.prepare(
        setup.split_batches.samples(setup.split_batches.first_rows())[0]
    )
    layers, total = dict(setup.model.named_modules()), 0.0
    with torch.no_grad():
        for name, call in sample_calls(setup.model, inputs).items():
            assert type(layers[name]) in KINDS
            shape = (len(inputs), *call.shape)
            for ways in kernels(layers[name], shape, call.needs_grad_input):
                total += min(map(ms_of, ways))
    for parameter in setup.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    tune_update(setup)
    setup.optimizer.step()
    return total, ms_of(setup.optimizer.step)


def measure(case: Case, rounds: int) -> None:
    """Prints a row."""
    layers, update = floor_ms(setup_of(case, "cpu", "bundled", 1))
    theirs = script(setup_of(case, "cpu", "bundled", 1))
    own = ours(case, Way("tuned"), "cpu", "bundled")
    for block in (theirs, own):
        timed(CPU, block, case.steps)
    times = [(timed(CPU, theirs, case.steps), timed(CPU, own, case.steps)) for _ in range(rounds)]
    script_ms, own_ms = (statistics.median(values) for values in zip(*times, strict=True))
    bound = layers + update
    print(
        f"| `{case.workload}`, batch {case.batch_size} | {script_ms:.2f} | {own_ms:.2f} "
        f"| {script_ms / own_ms:.2f} | {layers:.2f} + {update:.2f} | {script_ms / bound:.2f} |",
        flush=True,
    )


def lanes(case: Case) -> None:
    """Prints what one call for all gains over one for each."""
    setup = setup_of(case, "cpu", "bundled", 1)
    inputs = setup.workload.prepare(
        setup.split_batches.samples(setup.split_batches.first_rows())[0]
    )
    layers = dict(setup.model.named_modules())
    alone = together = 0.0
    for name, call in sample_calls(setup.model, inputs).items():
        layer = layers[name]
        assert isinstance(layer, nn.Linear)
        x = torch.randn(LANES, len(inputs), *call.shape)
        weight = torch.randn(LANES, *layer.weight.shape)
        gradient = torch.randn(LANES, len(inputs), layer.out_features)
        for left, right in _products(x, weight, gradient, call.needs_grad_input):
            alone += LANES * ms_of(partial(torch.mm, left[0], right[0]))
            together += ms_of(partial(torch.bmm, left, right))
    print(
        f"{LANES} trials of `{case.workload}`: products one by one {alone:.2f} ms, "
        f"in one call {together:.2f} ms"
    )


def _products(
    x: Tensor, weight: Tensor, gradient: Tensor, needs_grad_input: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    yield x, weight.mT
    if needs_grad_input:
        yield gradient, weight
    yield gradient.mT, x


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=9)
    rounds = asked.parse_args().rounds
    print("| | script, ms | ours, ms | times as fast | kernels: layers + update, ms | at most |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        measure(case, rounds)
    lanes(CASES[-1])


if __name__ == "__main__":
    main()
