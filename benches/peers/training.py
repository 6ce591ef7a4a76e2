"""What the training programs of the other libraries share: processes, cores and time."""
import os
import socket
import subprocess
import sys
import time


class Steps:
    """Steps for so many seconds, after a few that are not counted, as `scaling` takes them."""

    WARM_UP = 3

    def __init__(self, step, seconds):
        self.step = step
        self.seconds = seconds

    def run(self, all_go_on):
        """The number of steps and what they took. `all_go_on` gives every worker the first one's
        decision; it is asked so rarely that asking takes no time."""
        for _ in range(self.WARM_UP):
            self.step()
        began = time.perf_counter()
        self.step()
        between = max(1, int(0.1 * self.seconds / (time.perf_counter() - began)))
        between = self.agreed(between, all_go_on)
        steps = 0
        began = time.perf_counter()
        while all_go_on(time.perf_counter() - began < self.seconds):
            for _ in range(between):
                self.step()
            steps += between
        return steps, time.perf_counter() - began

    @staticmethod
    def agreed(number, all_go_on):
        """The first worker's number, told bit by bit."""
        bits = [all_go_on(bool(number >> bit & 1)) for bit in range(20)]
        return max(1, sum(1 << bit for bit, is_set in enumerate(bits) if is_set))


def row(peer, model, workers, samples_per_s):
    print(f"{peer},{model},{workers},{samples_per_s:.1f}", flush=True)


def launch(work, environment):
    """Runs `work(model, rank, workers, seconds)` in as many processes as the command line asks for,
    each on its share of the cores."""
    model, workers = sys.argv[1], int(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 5.0
    if "TRAINING_RANK" in os.environ:
        work(model, int(os.environ["TRAINING_RANK"]), workers, seconds)
        return
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // workers)
    addresses = free_addresses(workers)
    processes = []
    for rank in range(workers):
        own = [cores[(rank * share + at) % len(cores)] for at in range(share)]
        processes.append(subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, "TRAINING_RANK": str(rank), **environment(addresses, rank)},
            preexec_fn=lambda own=own: os.sched_setaffinity(0, own),
        ))
    sys.exit(max(abs(process.wait()) for process in processes))


def free_addresses(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return addresses
