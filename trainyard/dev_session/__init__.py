"""The cluster's part of `train dev`: a warm process that reruns a job after each save.

On the cluster it is a separate package, uploaded next to the job's code: `training` may itself be
edited, or be a folder of the user's.
"""
