"""The calls of a step as the user wrote them: what layers and probes both watch with."""
