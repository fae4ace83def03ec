"""The work of `train debug-dump`: one archive for a bug report, without secrets."""
