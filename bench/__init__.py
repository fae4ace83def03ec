"""Benchmarks: a module per ratio of docs/benchmarks.md, ours and the plain way in the same run."""
