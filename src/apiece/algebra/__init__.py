"""What an algorithm is a sum of: pieces, periods, broadcasts, optimizers."""
