"""The pieces of algorithms, one in each file: equation, reference, code."""
