"""One client's operation for many clients: in threads, by vmap, compiled, as CUDA graphs, in worker processes."""
