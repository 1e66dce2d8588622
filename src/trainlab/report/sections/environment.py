"""The machines, the software and the data of a run."""

from trainlab.analysis.document import Section
from trainlab.analysis.finding import RunData
from trainlab.report.tables.environment import environment_table
from trainlab.words import Words


def environment_section(data: RunData, words: Words) -> Section:
    """The machines and software everything ran on."""
    evidence = data.evidence
    machines = evidence.environments.values()
    tables = tuple(environment_table(machine, words, evidence) for machine in machines)
    return Section("environment", words("environment"), tables)
