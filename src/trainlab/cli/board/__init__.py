"""TensorBoard on runs of trainlab: what its runs are called, and what it opens on."""
