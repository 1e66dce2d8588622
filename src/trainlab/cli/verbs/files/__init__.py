"""Verbs that write files to go on with."""
