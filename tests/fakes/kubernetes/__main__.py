"""`python -m tests.fakes.kubernetes` makes the parts of clusters: then no test waits for them.

`python -m tests.fakes.kubernetes up` brings one up, prints where its kubeconfig is, and ends it
with Ctrl-C. `up kuberay gpu_node` adds KubeRay's operator and a fake GPU node.
"""

import contextlib
import signal
import sys

from tests import go_tools
from tests.fakes.kubernetes import Node, NoKubernetesError, gpu_node, kuberay

BESIDE = {"kuberay": kuberay.operator, "gpu_node": gpu_node.process}
USAGE = f"up [{'] ['.join(BESIDE)}]"


def main(arguments: list[str]) -> int:
    """Make the program, or bring a cluster up until a signal comes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not arguments:
            go_tools.obtain("hk")
            go_tools.obtain(kuberay.PROGRAM)
        elif arguments[0] == "up" and set(arguments[1:]) <= BESIDE.keys():
            _up(arguments[1:])
        else:
            sys.stderr.write(f"error: {' '.join(arguments)}: it is nothing, or {USAGE}\n")
            return 2
    except (NoKubernetesError, go_tools.GoToolError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _up(beside: list[str]) -> None:
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(Node())
        for name in beside:
            stack.enter_context(BESIDE[name](node))
        sys.stdout.write(
            f"export KUBECONFIG={node.kubeconfig} PATH={node.programs}:$PATH\nCtrl-C ends it\n"
        )
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


sys.exit(main(sys.argv[1:]))
