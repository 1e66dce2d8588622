"""Verbs that hold one run against another."""
