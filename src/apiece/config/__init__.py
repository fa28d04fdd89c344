"""The settings of a run, and what assembles them into an experiment."""
