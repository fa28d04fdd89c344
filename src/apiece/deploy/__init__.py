"""Clients on machines of their own, reached through Flower: what runs on the coordinator and on a node."""
