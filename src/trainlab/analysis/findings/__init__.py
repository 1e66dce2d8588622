"""Findings: what a study has shown, or could not show, as values with their sentences."""

from trainlab.analysis.cost import cost_findings
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.analysis.findings.learning import learn_findings
from trainlab.analysis.findings.probes import probe_findings
from trainlab.analysis.findings.run import ran_as_findings, undecided_findings, unfinished_findings
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
