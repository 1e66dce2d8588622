"""What a step costs, from the raw records of several processes."""
