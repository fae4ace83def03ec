"""Multiplies matrices N times, each on the four TPU chips of a node, in parallel if there is room.

    train submit tpu_example --runtime-env tpu -- 10
    ray job submit --working-dir . --runtime-env config/runtime/tpu.yaml -- python tpu_example.py 10

Chips are a counted resource; a stack's settings can give them to a node:
`trainyard:worker: {resources: {TPU: 4}}`. A node without torch_xla computes on its CPUs.
"""

import argparse
import importlib.util

import ray

CHIPS = 4  # of a node
SIDE = 1000
MOST = 1000

parser = argparse.ArgumentParser()
parser.add_argument("runs", type=int, metavar="N", help="runs, 1 to 1000")


@ray.remote(num_cpus=0, resources={"TPU": CHIPS})
def run_tpu(number: int) -> tuple[int, str, float]:
    """Multiplies two random matrices; returns the number, the device and the sum."""
    import torch  # noqa: PLC0415 - on the node only

    device = torch.device("cpu")
    if importlib.util.find_spec("torch_xla") is not None:
        import torch_xla  # noqa: PLC0415

        device = torch_xla.device()
    torch.manual_seed(number)
    matrix = torch.rand(SIDE, SIDE, device=device)
    return number, device.type, (matrix @ matrix).sum().item()


def main() -> None:
    """Runs the function and prints its results."""
    runs = parser.parse_args().runs
    if not 1 <= runs <= MOST:
        parser.error(f"N is {runs}, not within 1 and {MOST}")
    ray.init(log_to_driver=False)
    chips = ray.cluster_resources().get("TPU", 0)  # type: ignore[no-untyped-call]
    if chips < CHIPS:
        raise SystemExit(
            f"error: the cluster has {chips:g} TPU chips and a run needs {CHIPS} on one node: give "
            "its workers the resource TPU in the stack's settings, then run `make up`"
        )
    for number, device, total in ray.get([run_tpu.remote(number) for number in range(runs)]):
        print(f"run {number} on {device}: sum {total:.1f}", flush=True)


if __name__ == "__main__":
    main()
