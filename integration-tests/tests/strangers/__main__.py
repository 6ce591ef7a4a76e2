"""Programs that are not ours, against both ports of a group that trains.

usage: python3 integration-tests/tests/strangers PATH/TO/mlp

After each stranger both ranks must have made more steps; in the end all steps must be those of a group
that nobody disturbed, and a loss must still be noticed. What is not installed is left out by name.
"""

import importlib.util
import os
import shutil
import sys

import tcp
from group import Disturbed, Group

STEPS = 20


def left_out(kind, missing):
    print(f"skipped: {kind}, for want of {missing}")
    return []


def strangers():
    """Each with its name, where it calls, and whether it is told of all ports at once."""
    found = [(scene, "TCP") for scene in tcp.PLAIN]
    if shutil.which("openssl"):
        found += [(scene, "TCP, OpenSSL") for scene in tcp.OPENSSL]
        if importlib.util.find_spec("tlslite"):
            found += [(scene, "TCP, tlslite-ng") for scene in tcp.TLSLITE]
        else:
            left_out("strangers by tlslite-ng", "the package tlslite-ng")
    else:
        left_out("strangers by OpenSSL and tlslite-ng", "the program openssl")
    if not importlib.util.find_spec("aioquic"):
        return found + left_out("strangers over QUIC", "the package aioquic")
    import udp

    found += [(scene, "UDP, aioquic") for scene in udp.AIOQUIC]
    if os.geteuid() != 0:
        return found + left_out("forged packets", "the right to send them, which root has")
    return found + [(udp.closes_the_connection_of_others, "UDP, forged")]


def main(program):
    with Group(program) as undisturbed:
        undisturbed.go_on(200)
        pace = undisturbed.go_on(STEPS)
    print(f"undisturbed: {STEPS} steps in {pace:.2f} s")
    with Group(program) as group:
        for scene, where in strangers():
            whom = group.ports if where.endswith("forged") else group.ports[0]
            said = scene(whom)
            pace = group.go_on(STEPS)
            print(f"{where}: {scene.__name__.replace('_', ' ')}: {said}; {STEPS} steps in {pace:.2f} s")
        count = group.compare(undisturbed)
        took, named = group.lose_one()
        print(f"{count} pairs of steps have equal losses and models; a loss was noticed in {took:.2f} s")
        print(named)
        for rank, worker in enumerate(group.workers):
            for line in worker.lines("WARN"):
                print(f"log of rank {rank}: {line.strip()}")
            turned = len(worker.lines("is turned away"))
            print(f"log of rank {rank}: {turned} connections over TCP turned away")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (AssertionError, Disturbed) as problem:
        sys.exit(f"failed: {problem}")
