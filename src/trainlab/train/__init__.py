"""Training: one loop, the update it repeats, and the moments instruments watch."""
