"""What a person sees while trials run."""
