"""What one does with a stack from outside: compare, review, scale, rotate, end what is left."""
