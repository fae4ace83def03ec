"""The kubernetes runtime: services as objects of a cluster that is there, Ray by KubeRay."""
