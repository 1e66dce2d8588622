"""Executors: where and in what order the trials of a run are run."""
