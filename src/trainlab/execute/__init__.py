"""Execution: the worker that runs trials, and the ways to get it to run."""
