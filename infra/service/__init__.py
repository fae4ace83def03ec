"""The life of a service, in every place; node/life.py has the part that machines need."""
