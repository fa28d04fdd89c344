"""One model is one vector."""
