"""From a configuration to a run folder: the loop, resuming, personalizing, comparing and grids."""
