"""The queue of jobs: a service that keeps each submission, and starts it when it is its turn."""
