"""Tags in TensorBoard's event files: TensorBoard shows them in alphabetical order of what comes first."""

USUAL = ("test/accuracy", "train/accuracy", "test/loss", "train/loss")
"""The metrics that are looked at first."""


def metric_tag(metric: str) -> str:
    """`test/accuracy` as `accuracy/test over samples`: the two curves of a metric stand beside each other,
    accuracies and losses come before everything else, and what TensorBoard calls a step is named."""
    part, slash, name = metric.partition("/")
    return f"{name}/{part} over samples" if slash else metric


def step_tag(metric: str) -> str:
    """A metric within the epochs, apart from the epoch's own: their last points fall on the same place."""
    return f"step/{metric_tag(metric)}"


def probe_tag(quantity: str, reducer: str, every: str, target: str) -> str:
    """All that tells two probes of one layer apart, its period included."""
    return f"probe/{quantity}:{reducer}@{every}/{target}"
