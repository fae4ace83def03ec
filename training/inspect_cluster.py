"""Prints the total resources of the cluster's nodes.

train submit inspect_cluster
ray job submit --working-dir . -- python inspect_cluster.py
"""

import ray

GIB = 2**30


def main() -> None:
    """Prints the totals."""
    ray.init(log_to_driver=False)
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    total = ray.cluster_resources()  # type: ignore[no-untyped-call]
    print(f"nodes      {sum(node['Alive'] for node in nodes)}")
    print(f"CPUs       {total.get('CPU', 0):g}")
    print(f"memory     {total.get('memory', 0) / GIB:.1f} GiB")
    print(f"GPUs       {total.get('GPU', 0):g}")
    print(f"TPU chips  {total.get('TPU', 0):g}")


if __name__ == "__main__":
    main()
