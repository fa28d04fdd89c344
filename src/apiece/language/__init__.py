"""Expressions such as `scaffold + relaxed_init(0.1)`, and all that can be named in them."""
