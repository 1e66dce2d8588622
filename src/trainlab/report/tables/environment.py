"""The machine, the software and the data of a run, as a table."""

from trainlab.analyse.evidence import Evidence
from trainlab.record.environment import Environment
from trainlab.report.document import Table
from trainlab.report.tables.columns import Field, name, table_of
from trainlab.words import Words


def environment_table(
    environment: Environment, words: Words, evidence: Evidence | None = None
) -> Table:
    """One row per fact; with the data that a run used."""
    rows = environment_rows(environment, words)
    data = [t.data for t in (evidence.trials if evidence else ()) if t.data is not None]
    used = dict.fromkeys(f"{d.name}: {d.num_train:,} + {d.num_test:,} ({d.source})" for d in data)
    rows += [(words("env_data"), one) for one in used]
    fields: list[Field[tuple[str, str]]] = [
        name(words("what"), lambda row: row[0]),
        name(words("value"), lambda row: row[1]),
    ]
    note = words("environment_note") if evidence else ""
    caption = words("environment_table" if evidence else "environment_now")
    return table_of(caption, fields, rows, note)


def environment_rows(environment: Environment, words: Words) -> list[tuple[str, str]]:
    """What explains a number, as name and value."""
    e = environment
    usable = words("vcpus", usable=e.num_vcpus_usable, number=e.num_vcpus)
    rows = [
        (words("env_cpu"), f"{e.cpu}, {usable}"),
        (words("env_memory"), f"{e.memory_gib} GiB"),
    ]
    for gpu in e.gpus:
        memory = "" if gpu.memory_gib is None else f", {gpu.memory_gib:.0f} GiB"
        rows.append((words("env_gpu"), gpu.name + memory))
    rows.append((words("env_os"), f"{e.os}, {e.kernel}"))
    rows.append(("Python", e.python))
    packages = ", ".join(f"{package} {version}" for package, version in e.packages.items())
    rows.append((words("env_packages"), packages))
    if e.cuda:
        cudnn = f", cuDNN {e.cudnn}" if e.cudnn else ""
        driver = f", {words('env_driver')} {e.driver}" if e.driver else ""
        rows.append(("CUDA", f"{e.cuda}{cudnn}{driver}"))
    if e.torch_threads is not None:
        rows.append((words("env_threads"), str(e.torch_threads)))
    if e.variables:
        variables = ", ".join(f"{variable}={given}" for variable, given in e.variables.items())
        rows.append((words("env_variables"), variables))
    if e.git_commit:
        dirty = f" ({words('env_dirty')})" if e.git_dirty else ""
        rows.append((words("env_commit"), e.git_commit[:12] + dirty))
    return rows
