"""TensorFlow DTensor on what the bench `dtensor` measures: median milliseconds, as rows `what,ms`.

    python3 -m venv tf && tf/bin/pip install tensorflow-cpu==2.20
    tf/bin/python benches/peers/tensorflow_dtensor.py [rounds]

The mesh is x=2, y=2 over four virtual CPUs of one process, as that of one client in the bench; the names are
those of the bench.
"""

import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow.experimental import dtensor

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
WHOLE = dtensor.UNSHARDED


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    mesh = dtensor.create_mesh([("x", 2), ("y", 2)], devices=[f"CPU:{i}" for i in range(4)])
    small = ones([2, 2], ["x", "y"], mesh)
    report("add, 4 devices of 4 bytes each", lambda: tf.add(small, small))
    columns = dtensor.Layout(["y", "x"], mesh)
    report("relayout, 4 devices of 4 bytes each", lambda: dtensor.relayout(small, columns))
    for name, before, after in [
        ("rows to columns", ["x", WHOLE], [WHOLE, "x"]),
        ("gather", ["x", "y"], [WHOLE, WHOLE]),
    ]:
        large = ones([4096, 4096], before, mesh)
        target = dtensor.Layout(after, mesh)
        report(f"{name}, 64 MiB, one client", lambda: dtensor.relayout(large, target))
    line = dtensor.create_mesh([("x", 2)], devices=["CPU:0", "CPU:1"])
    left, right = ones([1024, 1024], ["x", WHOLE], line), ones([1024, 1024], [WHOLE, WHOLE], line)
    report("product of 1024², two devices", lambda: tf.matmul(left, right))


def ones(shape, specs, mesh):
    return dtensor.call_with_layout(tf.ones, dtensor.Layout(specs, mesh), shape)


def report(what, action):
    times = []
    for number in range(ROUNDS + 2):
        began = time.perf_counter()
        # The blocks of all devices are there when each has been looked at.
        for block in dtensor.unpack(action()):
            block._numpy()
        if number >= 2:
            times.append((time.perf_counter() - began) * 1e3)
    print(f'"{what}",{statistics.median(times):.3f}', flush=True)


main()
