"""A chart by itself: shown by a notebook, saved as a picture, or handed on as Vega-Lite."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab.analysis.document import Figure
from trainlab.errors import MissingExtraError, SpecError
from trainlab.record.files import writing
from trainlab.report.render.pictures import picture, png_of


@dataclass(frozen=True, repr=False)
class Chart:
    """One figure of a run."""

    figure: Figure

    @property
    def spec(self) -> dict[str, Any]:
        """Vega-Lite with its data in it, as `altair.Chart.from_dict` takes it."""
        return self.figure.spec

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The data of the chart."""
        rows: list[dict[str, Any]] = self.figure.spec["data"]["values"]
        return rows

    def svg(self) -> str:
        """The picture; MissingExtraError without vl-convert."""
        return picture(self.figure)

    def save(self, path: Path | str) -> Path:
        """Writes the picture as .svg or .png, and returns its path."""
        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise SpecError([f"{path}: must end in .svg or .png"])
        svg = self.svg()
        with writing(path):
            path.write_bytes(svg.encode() if path.suffix == ".svg" else png_of(svg))
        return path

    def __repr__(self) -> str:
        return f"<Chart {self.figure.caption}: {self.figure.alt}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """For a notebook: the picture, or why there is none."""
        try:
            return {"image/svg+xml": self.svg(), "text/plain": repr(self)}
        except MissingExtraError as error:
            return {"text/plain": f"{self!r} ({error})"}
