"""Draws the speed of the engines, from a file that `benchmarks.engines --json` wrote.

python -m benchmarks.chart benchmarks/results/2026-11-16-engines-h200.json docs/examples/speed.svg
"""

import json
import sys
from pathlib import Path
from typing import Any

import vl_convert

NAMES = {
    "script": "sample script",
    "eager": "trainlab, eager",
    "graphed": "trainlab, graphed",
    "lanes 32": "trainlab, 32 or 64 lanes",
    "lanes 64": "trainlab, 32 or 64 lanes",
}
TIMES = "\N{MULTIPLICATION SIGN}"
ORDER = ["Lightning", *dict.fromkeys(NAMES.values())]


def rows_of(told: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per case and way."""
    return [
        {
            "case": f"{case['workload']}, batch {case['batch_size']}",
            "way": NAMES.get(name, name),
            "ratio": way["ratio"],
            "low": way["interval"][0],
            "high": way["interval"][1],
            "label": f"{way['ratio']:.{0 if way['ratio'] >= 10 else 1}f}{TIMES}",
        }
        for case in told["cases"]
        for name, way in case["ways"].items()
    ]


def spec_of(told: dict[str, Any]) -> dict[str, Any]:
    """Times as fast as the sample script, on a logarithmic axis, with 95% intervals."""
    axis = {"values": [1, 10, 100], "format": "d"}
    scale = {"type": "log", "domain": [0.4, 4000]}
    ratio = {
        "field": "ratio",
        "type": "quantitative",
        "scale": scale,
        "axis": axis,
        "title": "times as fast as the sample script",
    }
    low = {"field": "low", "type": "quantitative", "scale": scale}
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 2, "color": "#1f6feb"},
            "encoding": {"x": low, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 60, "color": "#1f6feb"},
            "encoding": {"x": ratio},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 12},
            "encoding": {"x": ratio, "text": {"field": "label"}},
        },
    ]
    ways = {"field": "way", "type": "nominal", "sort": ORDER, "title": None}
    return {
        "background": "white",
        "data": {"values": rows_of(told)},
        "facet": {"field": "case", "type": "nominal", "title": None, "sort": None},
        "columns": 2,
        "spec": {"width": 230, "height": 110, "encoding": {"y": ways}, "layer": layers},
    }


def main() -> None:
    """From the file named first to the one named second."""
    source, target = map(Path, sys.argv[1:])
    spec = spec_of(json.loads(source.read_text()))
    target.write_text(vl_convert.vegalite_to_svg(spec, "6.4"))


if __name__ == "__main__":
    main()
