"""What is seen of torch: its calls, told to whoever watches."""
