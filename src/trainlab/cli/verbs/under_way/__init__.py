"""Verbs about a run that is not finished: go on with it, look at it, stop it."""
