"""How machines, Docker Engines and states are reached. All packages may import this one."""
