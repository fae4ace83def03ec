"""The cluster's part of `train dev`: a warm process that runs a job anew after each save.

A package of its own on the cluster, uploaded beside the job's code: `training` may be part of what
is edited, or a folder of the user's.
"""
