"""`python -m infra.drift`: what of a stack is no longer as its state says. Nothing is changed."""
