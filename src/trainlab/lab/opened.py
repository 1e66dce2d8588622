"""A run folder, opened for its results."""

from pathlib import Path
from typing import TYPE_CHECKING

from trainlab.record.folder import RunFolder, check_run
from trainlab.words import Words

if TYPE_CHECKING:
    import pandas as pd

    from trainlab.analyse.evidence import Evidence
    from trainlab.analyse.findings.finding import Finding
    from trainlab.export.formats import Exported


class Run(RunFolder):
    """A run folder that also offers its results as tables and findings."""

    _evidence: "Evidence | None" = None

    def evidence(self) -> "Evidence":
        """All its records, arranged by cell; read again only while trials are still to come."""
        from trainlab.analyse.evidence import gather

        if self._evidence is None or not self._evidence.is_complete:
            self._evidence = gather(self)
        return self._evidence

    def results(self) -> "pd.DataFrame":
        """One row per trial: levels, seed, state, final metrics, time, cost."""
        from trainlab.analyse.results import trial_table

        return trial_table(self.evidence())

    def epochs(self) -> "pd.DataFrame":
        """One row per learn trial and epoch."""
        from trainlab.analyse.results import epoch_table

        return epoch_table(self.evidence())

    def probes(self) -> "pd.DataFrame":
        """One row per value of a probe; histograms apart."""
        from trainlab.analyse.results import probe_table

        return probe_table(self.evidence().probed)

    def histograms(self) -> "pd.DataFrame":
        """One row per bin of a probe's histogram."""
        from trainlab.analyse.results import histogram_table

        return histogram_table(self.evidence().probed)

    def findings(self) -> "tuple[Finding, ...]":
        """What the study shows and what it cannot tell, as values."""
        from trainlab.analyse.findings import findings

        return findings(self.evidence())

    def export(
        self,
        to: str,
        out: Path | str | None = None,
        *,
        lang: str = "en",
        tracking_uri: str | None = None,
    ) -> "Exported":
        """Writes the run for another program: `to` is csv, parquet, latex, mlflow or perfetto. Files go to
        `out`, a folder (not given: `export/` of the run); mlflow goes to the server at `tracking_uri`, or
        where MLFLOW_TRACKING_URI says."""
        from trainlab.export.formats import export_run

        folder = None if out is None else Path(out)
        return export_run(self, self.evidence(), to, folder, lang=lang, tracking_uri=tracking_uri)

    def sentences(self, lang: str = "en") -> list[str]:
        """The findings in words."""
        words = Words(lang)
        return [finding.sentence(words) for finding in self.findings()]


def open_run(path: Path | str) -> Run:
    """A run folder of this or another machine."""
    check_run(Path(path))
    run = Run(Path(path))
    run.study()
    return run
