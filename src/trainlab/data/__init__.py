"""Datasets: where they come from, their checksums, the cache, the bundled subsets."""
