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
# MiB: 64 callers at most are heard at a time.
MEMORY = 64


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

    def __init__(self, program, rank, ports, identity, carrier):
        cluster = {"worker": [f"{HOST}:{port}" for port in ports]}
        task = {"type": "worker", "index": rank}
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            **identity,
            "MESHWORK_TRANSPORT": "quic",
            "MESHWORK_CARRIER": carrier,
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
    """The workers of a job: of an authority, or of a secret that nobody else has."""

    def __init__(self, program, authority=None, carrier="tls"):
        self.ports = [free_port(), free_port()]
        secret = {"MESHWORK_JOB_SECRET": secrets.token_hex(32)}
        identities = [authority.environment(rank) if authority else secret for rank in range(2)]
        self.workers = [
            Worker(program, rank, self.ports, identity, carrier)
            for rank, identity in enumerate(identities)
        ]
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

    def held(self):
        """The memory of each rank, in MiB, and its open files."""
        folders = [f"/proc/{worker.process.pid}" for worker in self.workers]
        pages = [int(open(f"{folder}/statm").read().split()[1]) for folder in folders]
        memory = [count * os.sysconf("SC_PAGE_SIZE") >> 20 for count in pages]
        return memory, [len(os.listdir(f"{folder}/fd")) for folder in folders]

    def lets_go(self, before):
        """All that strangers made the ranks hold is let go, but for memory to be used again."""
        until = time.monotonic() + PATIENCE
        while True:
            memory, files = self.held()
            if files <= before[1]:
                break
            if time.monotonic() > until:
                raise Disturbed(f"open files: {before[1]} before, {files} after")
            time.sleep(0.1)
        grown = [now - then for now, then in zip(memory, before[0])]
        if max(grown) > MEMORY:
            raise Disturbed(f"the ranks have grown by {grown} MiB")
        return f"the ranks have grown by {grown} MiB; open files as before"

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
