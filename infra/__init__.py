"""WHERE things run: hosts, runtimes and the Pulumi program that wires services to them."""
