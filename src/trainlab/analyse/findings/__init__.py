"""Findings: what a study has shown, or could not show, as values."""
