"""The machine as it is: devices, memory, load, the environment of a run."""
