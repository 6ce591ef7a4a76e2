#!/usr/bin/env python3
"""Samples a second of data-parallel training by torch's DistributedDataParallel over Gloo.

    OMP_NUM_THREADS=1 python torch_training.py small|large|cnn WORKERS [SECONDS]

The models, batch and optimizer are those of `scaling`; every worker is a process with one thread, on
the cores that are its share of the machine. Prints peer,model,workers,samples_per_s."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from training import Steps, launch, row


class Images(nn.Module):
    """The network of the MNIST example."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.SiLU(),
            nn.Conv2d(8, 24, 3, padding=1), nn.SiLU(),
            nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(24 * 7 * 7, 48), nn.SiLU(),
            nn.Linear(48, 10),
        )

    def forward(self, images):
        return self.layers(images)


def dense(sizes):
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def made(name):
    """A model and one batch for it."""
    if name == "small":
        return dense([64, 512, 512, 10]), torch.randn(256, 64)
    if name == "large":
        return dense([784, 4096, 4096, 10]), torch.randn(64, 784)
    return Images(), torch.rand(64, 1, 28, 28)


def work(name, rank, workers, seconds):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model, inputs = made(name)
    labels = torch.arange(len(inputs)) % 10
    if workers > 1:
        dist.init_process_group("gloo", rank=rank, world_size=workers)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()

    def all_go_on(goes_on):
        if workers == 1:
            return goes_on
        # Only the first worker decides, between rounds of steps.
        decision = torch.tensor([float(goes_on)])
        dist.broadcast(decision, 0)
        return bool(decision.item())

    steps, elapsed = Steps(step, seconds).run(all_go_on)
    if rank == 0:
        row("torch-ddp", name, workers, steps * len(inputs) * workers / elapsed)
    if workers > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    launch(work, lambda addresses, rank: {
        "MASTER_ADDR": addresses[0].split(":")[0],
        "MASTER_PORT": addresses[0].split(":")[1],
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    })
