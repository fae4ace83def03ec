"""How services run on a host."""
