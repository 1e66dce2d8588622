"""Scripts: what watching one has recorded, by cell."""
