"""Probes: activations, gradients and weights of any layer while it trains."""
