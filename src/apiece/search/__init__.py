"""The search for good settings: `apiece tune`."""
