"""One client's operation for many clients: threads, vmap, compiled, worker processes, streams."""
