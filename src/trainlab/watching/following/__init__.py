"""Following: what looks inside the model of a script while it trains: probes, its network, TensorBoard."""
