"""The CLI's side of Pulumi's protocol, with what the `pulumi` package from PyPI brings.

    python -m tests.fakes.pulumi_cli up -s STACK --yes

It takes the embedded engine's commands and flags, works on the same state, and is the embedded
engine but for what it replaces. What is as it is under the CLI:

- the program runs in a process of its own, started as the CLI's language host starts it: same
  arguments, environment, working folder and sys.path; it talks gRPC to a monitor and an engine;
- dynamic providers run in Pulumi's own host (`python -u -m pulumi.dynamic ADDRESS`), one process
  for an operation, started in the program's folder and driven over gRPC; it gets secrets in the
  clear, and its classes' methods that Pulumi does not know (`find`) are never called;
- `up` previews first, with a program and a host of its own, as `pulumi up --yes` does.

What is not: check, diff, steps, state and encryption are the embedded engine's, and so are the
providers of `docker:` and `command:` resources, whose plugins are on no package registry. A killed
operation is not recovered: the CLI leaves that to its user.
"""
