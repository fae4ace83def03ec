"""Models that the jobs train."""
