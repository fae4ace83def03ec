"""Work on a stack from outside: compare, review, scale, rotate, remove leftovers."""
