"""Workloads: the built-in ones, one file each, and loading a user's own."""
