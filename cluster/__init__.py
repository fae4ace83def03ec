"""WHAT runs: services of a Ray training cluster. Knows no cloud and no runtime."""
