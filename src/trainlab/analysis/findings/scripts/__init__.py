"""Scripts: findings about one that was watched."""
