"""Clients' rows and the server's checkpoints, written so that a crash does not spoil them."""
