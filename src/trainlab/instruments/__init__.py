"""Instruments: each watches a trial and writes records, and steers nothing."""
