"""Probes of many trials that are updated together: one lane of every tensor belongs to each."""
