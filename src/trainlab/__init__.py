"""trainlab: a lab bench for deep-learning training."""

__version__ = "0.1.0"
