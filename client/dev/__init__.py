"""`train dev`: a warm session on the cluster, which runs a job anew after each save."""
