"""Jobs, and the client that submits them. Knows a cluster only by its stack's outputs."""
