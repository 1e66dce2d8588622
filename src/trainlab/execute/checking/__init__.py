"""The preflight in a process of its own: a crash there is an answer, and the driver lives on."""
