"""One idea a file: equation, reference, code."""
