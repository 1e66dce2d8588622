"""Diagnosis: what may limit a script, from its record, and what the changes that were tried show."""
