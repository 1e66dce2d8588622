"""Records: the run folder, its schema, and the environment a run happened in."""
