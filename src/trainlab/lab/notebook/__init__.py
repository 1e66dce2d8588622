"""What a run shows in a notebook while it is under way."""
