"""The calls of a step as the user wrote them: `watch` sees them, the layer record and probes listen."""
