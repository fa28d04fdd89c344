"""Expressions such as `scaffold + relaxed_init(0.1)`, and the names that they can use."""
