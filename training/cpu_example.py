"""Runs N tasks of a second each, one CPU each, on the cores of a machine or cluster.

python cpu_example.py 8                   here
train submit cpu_example -- 50            on the cluster; or with Ray's own client:
ray job submit --working-dir . -- python cpu_example.py 50
"""

import argparse
import time

import ray

MOST = 1000
SECONDS = 1.0

parser = argparse.ArgumentParser()
parser.add_argument("tasks", type=int, metavar="N", help="tasks, 1 to 1000")


@ray.remote(num_cpus=1)
def work(number: int) -> int:
    """Keeps a core busy for a while."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        pass
    return number


def main() -> None:
    """Runs the tasks and prints their results in order."""
    tasks = parser.parse_args().tasks
    if not 1 <= tasks <= MOST:
        parser.error(f"N is {tasks}, not within 1 and {MOST}")
    ray.init(log_to_driver=False)
    begun = time.monotonic()
    results = [work.remote(number) for number in range(tasks)]
    waiting = list(results)
    while waiting:
        _, waiting = ray.wait(waiting, num_returns=min(len(waiting), max(1, tasks // 10)))
        print(f"{tasks - len(waiting)} of {tasks} tasks are done", flush=True)
    print(ray.get(results))
    print(f"{tasks} tasks of {SECONDS:g} s in {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
