"""A stack on Kubernetes as files, for Argo CD or Flux instead of `up`."""
