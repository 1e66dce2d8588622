"""Measurements behind what we claim about speed; results dated and hardware named in results/."""
