"""What the Python of a step keeps, reaches and does, as far as a step without it would differ."""
