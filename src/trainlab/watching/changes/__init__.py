"""Changes: one thing about a script made otherwise from outside, to see what it does to its time."""
