"""Recorded passes: what a step asks of torch, written down once, then run without Python and autograd."""
