"""Numbers as people read them, alike in every language."""

import math

from trainlab.spec.cell import level_text
from trainlab.spec.settings import Scalar

MIB = 1 << 20
MANY = 1e6
"""Losses beyond it, of a training gone wrong, are told with an exponent."""


def figure(value: float, digits: int = 3) -> str:
    """Three digits, thousands apart, no exponent for everyday sizes."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def figure_2(value: float) -> str:
    """Two digits."""
    return figure(value, 2)


def mib(num_bytes: float) -> str:
    """Bytes in MiB."""
    return figure(num_bytes / MIB)


def count(value: float) -> str:
    """A number of things, whole where it is: `7`, `1,204`; a median may be `7.50`."""
    return f"{value:,.0f}" if value == int(value) else figure(value)


def percent(share: float) -> str:
    """`12.3 %`; a small one with its first digit, `0.04 %`."""
    small = 5e-7 <= abs(share) < 5e-4
    return f"{100 * share:.1g} %" if small else f"{100 * share:.1f} %"


def is_share(metric: str) -> bool:
    """Whether a metric is told in per cent."""
    return metric.endswith("accuracy")


def metric_value(metric: str, value: float | None) -> str:
    """Accuracies as `97.82 %`, the rest to four places or three digits."""
    if value is None:
        return "not finite"
    if is_share(metric):
        return f"{100 * value:.2f} %"
    return f"{value:.4f}" if 0.01 <= abs(value) < MANY else f"{value:.3g}"


def metric_difference(metric: str, value: float, points: str) -> str:
    """`+0.41 points` for accuracies, `+0.0123` otherwise; `points` is the language's word."""
    if is_share(metric):
        return f"{100 * value:+.2f} {points}"
    return f"{value:+.4f}" if 0.001 <= abs(value) < MANY or value == 0 else f"{value:+.3g}"


def p_value(p: float) -> str:
    """`p = 0.03`, and never a claim of less than can be computed."""
    return "p < 0.001" if p < 1e-3 else f"p = {p:.2g}"


def level(value: Scalar | None) -> str:
    """A level as users write it."""
    return "?" if value is None else level_text(value)


def bare_operator(name: str) -> str:
    """Without torch's prefix."""
    return name.removeprefix("aten::")
