"""Points of a Hydra sweep on the nodes: each one a Ray job, or all of them tasks of one job."""
