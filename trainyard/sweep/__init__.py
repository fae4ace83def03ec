"""Points of a Hydra sweep on the nodes: each a Ray job, or all of them tasks of one job."""
