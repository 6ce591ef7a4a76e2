#!/usr/bin/env python3
"""Times one collective of Gloo on float32 the way `meshwork bench` times its own, by torch.distributed.

    python gloo_collectives.py allreduce|allgather|reducescatter|broadcast RANKS BYTES[,BYTES...] [SECONDS]

A sample is as many calls in a row, after a barrier, as take about 5 ms; its time is the slowest rank's;
the median over samples is printed. Values are checked before. Bytes are those of a rank's larger buffer.
Between hosts or namespaces each rank is started by itself: RANK, MASTER_ADDR, MASTER_PORT and
GLOO_SOCKET_IFNAME in its environment say so. Prints peer,op,ranks,bytes,median_us,algbw_GBps,busbw_GBps."""
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from training import free_addresses


def call_of(op, elements, rank, ranks):
    """The operation, and whether a call of it leaves the right values."""
    block = -(-elements // ranks)
    whole, part = torch.full((elements,), float(rank + 1)), torch.full((block,), float(rank + 1))
    blocks = [torch.zeros(block) for _ in range(ranks)]
    total = ranks * (ranks + 1) / 2
    if op == "allreduce":
        return lambda: dist.all_reduce(whole), lambda: bool((whole == total).all())
    if op == "broadcast":
        return lambda: dist.broadcast(whole, 0), lambda: bool((whole == 1).all())
    if op == "allgather":
        right = lambda: all(bool((block == of + 1).all()) for of, block in enumerate(blocks))
        return lambda: dist.all_gather(blocks, part), right
    if op == "reducescatter":
        given = torch.full((block * ranks,), float(rank + 1))
        return lambda: dist.reduce_scatter_tensor(part, given), lambda: bool((part == total).all())
    sys.exit(f"{op} is none of allreduce, allgather, reducescatter, broadcast")


def seconds(call, calls):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    slowest = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item() / calls


def measure(op, size, rank, ranks, budget):
    call, is_right = call_of(op, size // 4, rank, ranks)
    call()
    wrong = "" if is_right() else "_WRONG"
    calls = 1
    for _ in range(3):
        each = seconds(call, calls)
        calls = min(max(int(5e-3 / each), 1), 5000)
    samples = min(max(int(budget / (each * calls)), 7), 101)
    median = statistics.median(seconds(call, calls) for _ in range(samples))
    rate = size / median / 1e9
    factor = {"allreduce": 2, "broadcast": ranks / (ranks - 1)}.get(op, 1) * (ranks - 1) / ranks
    if rank == 0:
        print(f"gloo,{op}{wrong},{ranks},{size},{median * 1e6:.2f},{rate:.4f},{rate * factor:.4f}", flush=True)


def main():
    op, ranks, sizes = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
    budget = float(sys.argv[4]) if len(sys.argv) > 4 else 2.0
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        for size in sizes:
            measure(op, int(size), rank, ranks, budget)
        dist.destroy_process_group()
        return
    host, port = free_addresses(1)[0].split(":")
    cores = sorted(os.sched_getaffinity(0))
    started = []
    for rank in range(ranks):
        around = {"RANK": str(rank), "MASTER_ADDR": host, "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
        core = {cores[rank % len(cores)]}
        started.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **around},
                                        preexec_fn=lambda core=core: os.sched_setaffinity(0, core)))
    sys.exit(max(abs(process.wait()) for process in started))


if __name__ == "__main__":
    main()
