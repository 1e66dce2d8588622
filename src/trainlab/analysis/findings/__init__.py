"""Findings: what a study has shown, or could not show, as values with their sentences."""

from trainlab.analysis.cost import CostRatio, cost_findings
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.analysis.findings.learning import learn_findings
from trainlab.analysis.findings.probes import probe_findings
from trainlab.analysis.findings.run import (
    Undecided,
    ran_as_findings,
    undecided_findings,
    unfinished_findings,
)
from trainlab.analysis.run_data import RunData
from trainlab.analysis.scripts import repeat_findings, script_findings


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """What the study shows, and at the end what it cannot tell."""
    shown = [
        *unfinished_findings(evidence),
        *script_findings(evidence),
        *repeat_findings(evidence),
        *learn_findings(evidence),
        *probe_findings(evidence.probed),
        *cost_findings(evidence),
        *ran_as_findings(evidence),
    ]
    return (*shown, *undecided_findings(shown))


def data_of(evidence: Evidence) -> RunData:
    """The run as every section is written from."""
    found = findings(evidence)
    if evidence.diagnosis is not None:
        # A diagnosis compares its changes by rules of its own: a ratio has one verdict, not two.
        found = tuple(one for one in found if not isinstance(one, CostRatio | Undecided))
    return RunData(evidence, found)
