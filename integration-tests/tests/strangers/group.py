"""Two workers that train over both ports, and what can be seen of them from outside."""

import json
import os
import secrets
import socket
import subprocess
import threading
import time

HOST = "127.0.0.1"
PATIENCE = 30.0


class Disturbed(Exception):
    """The group did something else than train."""


def free_port():
    """A port that is free for UDP and for TCP."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind((HOST, 0))
            port = udp.getsockname()[1]
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp:
                try:
                    tcp.bind((HOST, port))
                    return port
                except OSError:
                    continue


class Worker:
    """One rank: its steps by number, and its log."""

    def __init__(self, program, rank, ports, secret):
        cluster = {"worker": [f"{HOST}:{port}" for port in ports]}
        task = {"type": "worker", "index": rank}
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            "MESHWORK_JOB_SECRET": secret,
            "MESHWORK_TRANSPORT": "quic",
            "MESHWORK_CARRIER": "tls",
        }
        command = [program, "--epochs=1000000", "--samples=256", "--verbose"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        self.steps, self.log = {}, []
        for read in (self._read_steps, self._read_log):
            threading.Thread(target=read, daemon=True).start()

    def _read_steps(self):
        for line in self.process.stdout:
            word, _, rest = line.partition(" ")
            if word == "step":
                number, _, state = rest.partition(" ")
                self.steps[int(number)] = state

    def _read_log(self):
        self.log.extend(self.process.stderr)

    def lines(self, text):
        return [line for line in list(self.log) if text in line]


class Group:
    """The workers of a job that nobody else has the secret of."""

    def __init__(self, program):
        self.ports = [free_port(), free_port()]
        secret = secrets.token_hex(32)
        self.workers = [Worker(program, rank, self.ports, secret) for rank in range(2)]
        self.go_on(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()

    def go_on(self, steps):
        """Waits until every rank has made so many more steps; says how long that took."""
        began = time.monotonic()
        goals = [len(worker.steps) + steps for worker in self.workers]
        for rank, (worker, goal) in enumerate(zip(self.workers, goals)):
            while len(worker.steps) < goal:
                if worker.process.poll() is not None:
                    said = "".join(worker.log[-3:])
                    raise Disturbed(f"rank {rank} has ended: {said}")
                if time.monotonic() - began > PATIENCE:
                    raise Disturbed(f"rank {rank} makes no steps for {PATIENCE} s")
                time.sleep(0.02)
        return time.monotonic() - began

    def compare(self, other):
        """All ranks have the same losses and models at each step, and those of an undisturbed group."""
        count = 0
        for one, two in [(self.workers[0], self.workers[1]), (self.workers[0], other.workers[0])]:
            for step in sorted(one.steps.keys() & two.steps.keys()):
                count += 1
                if one.steps[step] != two.steps[step]:
                    raise Disturbed(f"step {step}: {one.steps[step]} and {two.steps[step]}")
        return count

    def lose_one(self):
        """Kills rank 1; rank 0 has to name it, and soon."""
        survivor, victim = self.workers
        began = time.monotonic()
        victim.process.kill()
        if survivor.process.wait(PATIENCE) == 0:
            raise Disturbed("rank 0 trained to its end without rank 1")
        took = time.monotonic() - began
        time.sleep(0.2)
        said = survivor.lines("mlp: error:")
        if not said or "rank 1" not in said[0]:
            raise Disturbed(f"rank 0 does not name rank 1: {said}")
        return took, said[0].strip()
