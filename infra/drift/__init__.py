"""`python -m infra.drift`: how a stack differs from its state. Nothing is changed."""
