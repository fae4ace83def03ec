"""`python -m infra.operate.drift`: how a stack differs from its state. Nothing is changed."""
