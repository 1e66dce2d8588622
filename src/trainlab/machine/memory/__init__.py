"""The memory of this process: how it is kept, where it lies, and that there is no more."""
