"""Trains AlexNet on CIFAR-10 with Ray Train, for Ray's own client and from any machine.

    cd train
    ray job submit --working-dir . -- python alexnet_cifar10_ray.py
    ray job submit --working-dir . -- python alexnet_cifar10_ray.py --epochs 20 --cpu

It is training/alexnet.py, with its options, on CIFAR-10 and for one epoch. Everything that a
job of this folder needs is uploaded with it: `trainyard` and `training` are links.
"""

import sys

from trainyard.jobs import alexnet

if __name__ == "__main__":
    alexnet.main(["--data", "cifar10", "--epochs", "1", *sys.argv[1:]])
