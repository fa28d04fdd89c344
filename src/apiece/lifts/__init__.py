"""One client's operation for many clients: in threads, by vmap, compiled, in worker processes, on streams."""
