"""Verbs about a training script of the user's, run as it is."""
