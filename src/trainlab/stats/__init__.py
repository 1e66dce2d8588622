"""Statistics: numbers in, intervals and verdicts out. Knows nothing of trials or records."""
