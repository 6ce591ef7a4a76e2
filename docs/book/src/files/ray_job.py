"""Starts a program of Meshwork as one worker in each bundle of a Ray placement group.

    ray job submit --working-dir . -- \
        python ray_job.py --workers 4 --cpus 8 --secret-file /etc/meshwork/secret -- ./program

The secret is in a file that every node has: Ray's own messages are not encrypted unless it is told to.
"""

import argparse
import json
import os
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
class Worker:
    """One process of the job, on the node of its bundle."""

    def address(self):
        """Where the worker will listen: a port that is free now, for UDP and for TCP."""
        host = ray.util.get_node_ip_address()
        with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind((host, 0))
            tcp.bind(udp.getsockname())
            port = udp.getsockname()[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def run(self, command, addresses, index, secret_file):
        """The exit status of the program."""
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": addresses}, "task": task}
        environment = dict(os.environ, TF_CONFIG=json.dumps(config), MESHWORK_JOB_SECRET_FILE=secret_file)
        environment.pop("MESHWORK_JOB_SECRET", None)
        return subprocess.run(command, env=environment, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--cpus", type=float, default=1, help="of each worker")
    parser.add_argument("--gpus", type=float, default=0, help="of each worker")
    parser.add_argument("--secret-file", required=True, help="on every node, mode 600")
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args()

    ray.init()
    bundle = {"CPU": wanted.cpus, **({"GPU": wanted.gpus} if wanted.gpus else {})}
    group = placement_group([bundle] * wanted.workers, strategy="PACK")
    ray.get(group.ready())

    def worker(index):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        return Worker.options(
            num_cpus=wanted.cpus, num_gpus=wanted.gpus, scheduling_strategy=place
        ).remote()

    workers = [worker(index) for index in range(wanted.workers)]
    addresses = ray.get([worker.address.remote() for worker in workers])
    runs = [
        worker.run.remote(wanted.command, addresses, index, wanted.secret_file)
        for index, worker in enumerate(workers)
    ]
    # A worker that fails ends the others, which say why.
    statuses = ray.get(runs)
    print(f"exit statuses by rank: {statuses}", flush=True)
    return next((1 for status in statuses if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
