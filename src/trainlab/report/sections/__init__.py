"""The sections of a report, in the order people read."""
