"""A stack's settings: what they are, what they mean and what is refused."""
