"""`python -m tests.fakes.kubernetes` makes the parts of clusters: then no test waits for them.

`python -m tests.fakes.kubernetes up` brings one up, prints where its kubeconfig is, and ends it
with Ctrl-C. `up kuberay` adds KubeRay's operator.
"""

import contextlib
import signal
import sys

from tests import go_tools
from tests.fakes.kubernetes import Node, NoKubernetesError, kuberay

USAGE = "up [kuberay]"


def main(arguments: list[str]) -> int:
    """Make the program, or bring a cluster up until a signal comes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not arguments:
            go_tools.obtain("hk")
            go_tools.obtain(kuberay.PROGRAM)
        elif arguments in (["up"], ["up", "kuberay"]):
            _up(with_kuberay="kuberay" in arguments)
        else:
            sys.stderr.write(f"error: {' '.join(arguments)}: it is nothing, or {USAGE}\n")
            return 2
    except (NoKubernetesError, go_tools.GoToolError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _up(*, with_kuberay: bool) -> None:
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(Node())
        if with_kuberay:
            stack.enter_context(kuberay.operator(node))
        sys.stdout.write(
            f"export KUBECONFIG={node.kubeconfig} PATH={node.programs}:$PATH\nCtrl-C ends it\n"
        )
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


sys.exit(main(sys.argv[1:]))
