"""Checkpoints: all that training goes on from, so that its curve is the same to the last bit."""
