"""Access to machines, Docker Engines and states. All packages may import this one."""
