"""One round: the server, a client, the place where clients are, and what crosses between them."""
