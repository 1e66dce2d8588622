"""A package, whose script is run by `python -m`."""
