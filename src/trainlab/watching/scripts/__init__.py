"""Scripts: how one is started in a process of its own, and what it prints."""
