#!/usr/bin/env python3
"""Trains the text example by one method after the other on four sites: network namespaces with slow
links between them, by `wan.c`. As root:

    cargo build --release -p text
    benches/peers/slow_links.py --rate 20 --rtt 50 ddp:60 diloco:300 streaming:300

A method takes so many steps. One row each: the loss on the text for validation, steps a second, the
part of the time in which the chief waited for others, and megabytes sent by a site. Between rows is
the mean loss of the last 20 steps, every 30 s.

With `--logs FOLDER` it leaves what the chief has written for each step, `METHOD.json`, from which
`cargo run --release -p text --bin text-plot -- FOLDER/*.json` draws losses by bytes and by time.

Where the machine is too busy for four trainings, `--sleep MS` takes sleep for the steps of a model of
as many parameters, in which there is no loss; `ddp` then averages parameters after each step, which
sends as much as summing gradients. `diloco` compresses to int8 or not at all. Either program has to be
an optimized build:

    cargo build --release -p meshwork-integration-tests --bin diloco
    benches/peers/slow_links.py --sleep 100 ddp:20 diloco:150 streaming:150
"""

import argparse
import json
import os
import pathlib
import re
import secrets
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What takes sleep for steps.
DILOCO = ROOT / "target/release/diloco"
METHODS = ["ddp", "local", "diloco", "streaming"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="20", help="Mbit/s of each site")
    parser.add_argument("--rtt", default="50", help="round trip in ms")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--inner-steps", default="30")
    parser.add_argument("--compress", default="none", choices=["none", "int8", "int4", "topk"])
    parser.add_argument("--lr", default="0.002")
    parser.add_argument("--sleep", type=int, metavar="MS", help="of a step, in place of a training")
    parser.add_argument("--delay", default="7", help="steps of streaming, with --sleep")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "target/release/text")
    parser.add_argument("--logs", type=pathlib.Path, metavar="FOLDER", help="keep the chief's logs there")
    parser.add_argument("methods", nargs="+", metavar="METHOD:STEPS")
    args = parser.parse_args()
    check(parser, args)
    spaces = [f"mw-site-{number}" for number in range(1, args.sites + 1)]
    with tempfile.TemporaryDirectory() as folder:
        wan = pathlib.Path(folder) / "wan"
        subprocess.run(["cc", "-O2", "-o", wan, ROOT / "benches/peers/wan.c"], check=True)
        try:
            for space in spaces:
                subprocess.run(["ip", "netns", "add", space], check=True)
            links = subprocess.Popen([wan, args.rate, args.rtt, *spaces], stdout=subprocess.PIPE)
            assert links.stdout.readline() == b"up\n"
            print("method,steps,loss,wall_s,steps_per_s,waited_share,sent_mb", flush=True)
            for method in args.methods:
                train(args, *method.split(":"), spaces, args.logs or pathlib.Path(folder))
            links.kill()
        finally:
            for space in spaces:
                subprocess.run(["ip", "netns", "del", space], check=False)


def check(parser, args):
    """Refuses what would measure something else than it says."""
    for method in args.methods:
        name, _, steps = method.partition(":")
        if name not in METHODS or not steps.isdecimal():
            parser.error(f"{method} is no METHOD:STEPS, as diloco:300; methods are {', '.join(METHODS)}")
    if args.sleep is not None and args.compress not in ("none", "int8"):
        parser.error(f"--sleep compresses to int8 or not at all, not to {args.compress}; leave one of them out")
    if args.logs is not None and not args.logs.is_dir():
        parser.error(f"{args.logs} is no folder")
    program, package = args.text, "text"
    if args.sleep is not None:
        program, package = DILOCO, "meshwork-integration-tests --bin diloco"
    if not program.is_file():
        parser.error(f"{program} is missing: cargo build --release -p {package}")


def train(args, method, steps, spaces, folder):
    log = folder / f"{method}.json"
    program = [args.text, "--method", method, "--steps", steps, "--lr", args.lr, "--sample", "0"]
    if method != "ddp":
        program += ["--inner-steps", args.inner_steps, "--compress", args.compress]
    if args.sleep is not None:
        program = sleeping(args, method, steps)
    addresses = [f"10.77.0.{number}:47011" for number in range(1, len(spaces) + 1)]
    shared = {"MESHWORK_JOB_SECRET": secrets.token_hex(32)}
    # Sites on one machine would share memory.
    shared |= {"MESHWORK_TRANSPORT": "quic", "RAYON_NUM_THREADS": "1", "CANDLE_NUM_THREADS": "1"}
    before = [sent(space) for space in spaces]
    workers = []
    for number, space in enumerate(spaces):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}}
        environment = os.environ | shared | {"TF_CONFIG": json.dumps(task)}
        command = ["ip", "netns", "exec", space, *program]
        command += ["--json", log] if number == 0 and args.sleep is None else []
        first = None if number == 0 else subprocess.DEVNULL
        workers.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=first))
    said = [worker.communicate()[0].decode() for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), f"{method}: a worker failed"
    megabytes = f"{(sent(spaces[0]) - before[0]) / 1e6:.1f}"
    if args.sleep is not None:
        wall, waited = map(float, re.search(r"took ([0-9.]+) s, waited ([0-9.]+)", said[0]).groups())
        row = [method, steps, "", f"{wall:.1f}", f"{int(steps) / wall:.2f}", f"{waited / wall:.3f}", megabytes]
        print(",".join(row), flush=True)
        return
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    last = lines.pop()
    wall, waited = last["wall_s"], last["waited_s"]
    share = "" if waited is None else f"{waited / wall:.3f}"
    row = [method, steps, f"{last['validation_loss']:.4f}", f"{wall:.1f}"]
    print(",".join([*row, f"{len(lines) / wall:.2f}", share, megabytes]), flush=True)
    for seconds in range(30, int(wall) + 1, 30):
        until = [line["loss"] for line in lines if line["wall_s"] <= seconds][-20:]
        if until:
            print(f"# {method}: mean loss {sum(until) / len(until):.3f} after {seconds} s", flush=True)


def sleeping(args, method, steps):
    program = [DILOCO, "--parameters", "649781", "--steps", steps]
    program += ["--pause", str(args.sleep * 1000)]
    program += ["--inner-steps", "1" if method == "ddp" else args.inner_steps]
    program += ["--fragments", "4", "--delay", args.delay] if method == "streaming" else []
    return program + (["--compress"] if args.compress == "int8" and method != "ddp" else [])


def sent(space):
    """Bytes that a site has sent."""
    read = ["ip", "netns", "exec", space, "cat", "/sys/class/net/wan/statistics/tx_bytes"]
    for _ in range(50):
        result = subprocess.run(read, capture_output=True, check=False)
        if result.returncode == 0:
            return int(result.stdout)
        time.sleep(0.1)
    raise SystemExit(f"{space} has no device wan")


if __name__ == "__main__":
    main()
