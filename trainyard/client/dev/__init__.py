"""`train dev`: a warm session on the cluster, which runs a job again after each save."""
