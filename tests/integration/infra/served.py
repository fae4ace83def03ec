"""A job that starts Ray Serve as `train serve` does, without a model."""

from trainyard.serving import deploy

if __name__ == "__main__":
    deploy._connect()
    deploy._start(*deploy._address())
