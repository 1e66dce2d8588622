"""Watch: anyone's training script or loop, unchanged, seen through torch's own hooks."""
