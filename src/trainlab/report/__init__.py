"""From findings and records to a document; nothing here imports torch."""
