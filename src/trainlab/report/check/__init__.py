"""Whether the numbers of a report that was handed in are those of a run."""
