"""What maintains this repository, not a stack."""
