"""Data: sources, partitions, splits, noise, batches."""
