"""The training client: submits jobs to a stack's cluster and looks after them and their runs."""
