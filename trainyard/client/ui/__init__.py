"""`train ui`: one page of everything, served on loopback to the browser of its user."""
