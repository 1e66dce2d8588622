"""Seeing: torch's calls in this process, where its time goes and what it computes."""
