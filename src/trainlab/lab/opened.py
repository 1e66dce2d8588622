"""A run folder, opened for its results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from trainlab.errors import RecordError, TrainlabError, said_by
from trainlab.lab.notebook_display import session_words
from trainlab.record.files import make_folder
from trainlab.record.run_folder import RunFolder, check_run
from trainlab.spec.base import plain
from trainlab.words import Words

if TYPE_CHECKING:
    import pandas as pd

    from trainlab.analysis.evidence import Evidence
    from trainlab.analysis.finding import Finding
    from trainlab.analysis.gate import Gate
    from trainlab.export.frames import Exported
    from trainlab.report.pictures import Chart


class Findings(tuple["Finding", ...]):
    """Findings, shown as their sentences."""

    def __repr__(self) -> str:
        return "\n".join(one.sentence(session_words()) for one in self)

    def _repr_html_(self) -> str:
        items = (f"<li>{escape(plain(one.sentence(session_words())))}</li>" for one in self)
        return f"<ul>{''.join(items)}</ul>"


class Run(RunFolder):
    """A run folder that also offers its results as tables and findings."""

    _evidence: "Evidence | None" = None

    def evidence(self) -> "Evidence":
        """All its records, arranged by cell; read again only while trials are still to come."""
        if self._evidence is None or not self._evidence.is_complete:
            from trainlab.analysis.evidence import gather

            self._evidence = gather(self)
        return self._evidence

    @property
    def is_diagnosis(self) -> bool:
        """Whether it is to say what limits a script."""
        script = self.study().to_study(str(self.study_file)).script
        return script is not None and script.diagnosis is not None

    def results(self) -> "pd.DataFrame":
        """One row per trial: levels, seed, state, final metrics, time, cost."""
        from trainlab.analysis.results import trial_table

        return trial_table(self.evidence())

    def epochs(self) -> "pd.DataFrame":
        """One row per learn trial and epoch."""
        from trainlab.analysis.results import epoch_table

        return epoch_table(self.evidence())

    def probes(self) -> "pd.DataFrame":
        """One row per value of a probe; histograms apart."""
        from trainlab.analysis.results import probe_table

        return probe_table(self.evidence().probed)

    def histograms(self) -> "pd.DataFrame":
        """One row per bin of a probe's histogram."""
        from trainlab.analysis.results import histogram_table

        return histogram_table(self.evidence().probed)

    def confusion(self) -> "pd.DataFrame":
        """Test samples by the class that they are of (rows) and the class they were taken for (columns): of
        the best setting, all seeds together. No rows where the trials are about no classes."""
        from trainlab.analysis.results import confusion_table

        return confusion_table(self.evidence())

    def findings(self) -> "Findings":
        """What the study shows and what it cannot tell, as values."""
        from trainlab.analysis.overview import findings

        return Findings(findings(self.evidence()))

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

    def report(self, *, lang: str | None = None, formats: Sequence[str] = ("html",)) -> "Path":
        """Writes the report into the run's folder and returns the path of its first format.

        `formats` are of html, md and pdf; `lang` is en or zh, by default the environment's.
        """
        from trainlab.report.writing import check_formats, write_report

        names = check_formats(",".join(formats))
        make_folder(self.report_folder)
        return write_report(self.evidence(), self.report_folder, names, session_words(lang).lang)[0]

    def plot(self, metric: str, *, by_depth: bool = False, lang: str | None = None) -> "Chart":
        """The chart of a metric, as `test/accuracy`, or of a probe, as `*.weight:grad:norm@100`, over
        training; of a cost, as `step_ms`, by cell. `by_depth`: of a probe, from first to last layer.

        SpecError, naming what the run has, for any other name.
        """
        from trainlab.analysis.overview import data_of
        from trainlab.report.notebook import chart_of
        from trainlab.report.pictures import Chart

        data, words = data_of(self.evidence()), session_words(lang)
        return Chart(chart_of(data, metric, words, by_depth=by_depth))

    def __repr__(self) -> str:
        """The folder, and how many trials are in which state."""
        try:
            counts = Counter(trial.state for trial in self.trials())
        except TrainlabError as error:
            return f"<Run {self.path}: {error}>"
        states = ", ".join(f"{number} {state}" for state, number in counts.items())
        return f"<Run {self.path}: {states}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, tables, charts and where the report is. Never raises."""
        words = session_words()
        try:
            from trainlab.analysis.overview import data_of
            from trainlab.report.notebook import glance, notebook_html

            self._evidence = None  # the folder may have changed since
            title, blocks = glance(data_of(self.evidence()), words)
            report = self.report_folder / "report.html"
            link = report if report.is_file() else None
            return notebook_html(title, blocks, self.path, link, words)
        except Exception as error:  # noqa: BLE001  a run whose records make no sense still has a place
            reason = f"{type(error).__name__}: {said_by(error)}"
            return f"<p><b>{escape(plain(str(self.path)))}</b><br>{escape(plain(reason))}</p>"


def open_run(path: Path | str) -> Run:
    """A run folder of this or another machine."""
    check_run(Path(path))
    run = Run(Path(path))
    run.study()
    return run


# A run held against an earlier one, from Python.


def gate(
    run: RunFolder | Path | str,
    *,
    against: RunFolder | Path | str,
    slower: float | None = None,
    worse: Mapping[str, float] | None = None,
    mode: str | None = None,
    any_host: bool = False,
) -> "Gate":
    """Whether a run is slower, or learns worse, than an earlier run of the same thing on the same machine.

    `slower` is how much longer a step may take (0.05, unless `worse` is given alone); `worse` maps metrics,
    as `test/accuracy`, to how much worse they may be; `mode` is train or inference; `any_host` allows
    another host's name. The `verdict` is `pass`, `fail` or `cannot tell`, and each setting has its own in
    `checks`. RecordError where the two cannot be compared. For example
    `trainlab.gate("runs/new", against="runs/old", slower=0.05).exit_code`.
    """
    from trainlab.analysis.gate import gate_of

    ours, theirs = (
        one if isinstance(one, Run) else open_run(one.path if isinstance(one, RunFolder) else one)
        for one in (run, against)
    )
    if ours.path.resolve() == theirs.path.resolve():
        raise RecordError(f"{ours.path}: is compared with itself; name two run folders")
    a, b = ours.evidence(), theirs.evidence()
    return gate_of(a, b, slower=slower, worse=worse, mode=mode, any_host=any_host)
