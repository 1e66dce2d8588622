"""What a step runs: the model's forward pass and loss, as the workload defines them, and what it gives."""
