"""The driver of a run: the one process that runs its trials, from the start or from where it stopped."""
