"""PeFLL: Scott, Zakerinia and Lampert, personalized federated learning by learning to learn."""
