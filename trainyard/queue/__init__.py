"""The durable queue of a stack's jobs: which job starts next, and when."""
