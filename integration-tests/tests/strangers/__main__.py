"""Programs that are not ours, against both ports of a group that trains.

usage: python3 integration-tests/tests/strangers PATH/TO/mlp

After each stranger both ranks must have made more steps; in the end all steps must be those of a group
that nobody disturbed, and a loss must still be noticed. What is not installed is left out by name.
"""

import importlib.util
import os
import shutil
import sys
import tempfile

import tcp
from authority import Authority
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

    return found + [(scene, "UDP, aioquic") for scene in udp.AIOQUIC]


def forgers():
    """Strangers that send packets in the name of a rank, for which there have to be some."""
    if not importlib.util.find_spec("aioquic"):
        return []
    if os.geteuid() != 0:
        return left_out("forged packets", "the right to send them, which root has")
    import udp

    return [(udp.closes_the_connection_of_others, "UDP, forged")]


def certified(authority):
    """Strangers that have a certificate of the job, which tlsfuzzer speaks for."""
    folder = os.environ.get("MESHWORK_TLSFUZZER")
    if not folder:
        return left_out("strangers by tlsfuzzer", "a clone of it that MESHWORK_TLSFUZZER names")
    sys.path.insert(0, folder)
    from tlsfuzzer_members import Members
    from tlsfuzzer_scripts import scripts

    found = [*Members(authority).strangers(), *scripts(folder, authority)]
    return [(scene, "TCP, tlsfuzzer") for scene in found]


def besiege(group, visitors, undisturbed):
    """What each stranger gets, and that nothing is left of them all in the end."""
    before = group.held()
    for scene, where in visitors:
        whom = group.ports if where.endswith("forged") else group.ports[0]
        said = scene(whom)
        pace = group.go_on(STEPS)
        name = scene.__name__.replace("_", " ")
        print(f"{where}: {name}: {said}; {STEPS} steps in {pace:.2f} s", flush=True)
    print(group.lets_go(before))
    count = group.compare(undisturbed)
    took, named = group.lose_one()
    print(f"{count} pairs of steps have equal losses and models; a loss was noticed in {took:.2f} s")
    print(named)
    for rank, worker in enumerate(group.workers):
        for line in worker.lines("WARN"):
            print(f"log of rank {rank}: {line.strip()}")
        turned = len(worker.lines("is turned away"))
        print(f"log of rank {rank}: {turned} connections over TCP turned away")


def main(program):
    with Group(program) as undisturbed:
        undisturbed.go_on(200)
        pace = undisturbed.go_on(STEPS)
    print(f"undisturbed: {STEPS} steps in {pace:.2f} s")
    with Group(program) as group:
        besiege(group, strangers(), undisturbed)
    if visitors := forgers():
        # All that the ranks say goes over UDP.
        with Group(program, carrier="quic") as group:
            besiege(group, visitors, undisturbed)
    if not shutil.which("openssl"):
        return
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(folder)
        if visitors := certified(authority):
            with Group(program, authority) as group:
                besiege(group, visitors, undisturbed)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (AssertionError, Disturbed) as problem:
        sys.exit(f"failed: {problem}")
