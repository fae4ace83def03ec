"""A search with Ray Tune."""
