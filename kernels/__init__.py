"""What follows: pure arithmetic on arrays and columns. No path, clock, logger, process or environment."""
