"""Benches: timed trials that take turns, and how many processes of each are enough."""
