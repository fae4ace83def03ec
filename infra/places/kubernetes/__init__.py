"""The kubernetes runtime: services as objects of an existing cluster, Ray by KubeRay."""
