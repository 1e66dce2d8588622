"""Turning: processes that are timed take turns."""
