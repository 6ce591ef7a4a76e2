#!/usr/bin/env python3
"""Samples a second of data-parallel training by TensorFlow's MultiWorkerMirroredStrategy, ring over gRPC.

    python tensorflow_training.py small|large|cnn WORKERS [SECONDS]

The models, batch and optimizer are those of `scaling`; every worker is a process with one thread for
ops, on the cores that are its share of the machine. A step is one tf.function, and one worker runs
the same step without a strategy. Prints peer,model,workers,samples_per_s."""
import json
import os
import sys

import numpy as np

from training import Steps, launch, row


def dense(tf, sizes):
    """The variables of dense layers, and scores from inputs."""
    random = np.random.default_rng(0)
    weights, biases = [], []
    for inputs, outputs in zip(sizes, sizes[1:]):
        scale = inputs ** -0.5
        weights.append(tf.Variable(random.standard_normal((inputs, outputs)).astype(np.float32) * scale))
        biases.append(tf.Variable(np.zeros(outputs, np.float32)))

    def scores(values):
        for weight, bias in zip(weights[:-1], biases[:-1]):
            values = tf.nn.relu(tf.matmul(values, weight) + bias)
        return tf.matmul(values, weights[-1]) + biases[-1]

    return weights + biases, scores


def images(tf):
    """The same for the network of the MNIST example."""
    random = np.random.default_rng(0)

    def variable(*shape):
        scale = float(np.prod(shape[:-1])) ** -0.5
        return tf.Variable(random.standard_normal(shape).astype(np.float32) * scale)

    first, second = variable(5, 5, 1, 8), variable(3, 3, 8, 24)
    hidden, output = variable(24 * 7 * 7, 48), variable(48, 10)
    biases = [tf.Variable(np.zeros(size, np.float32)) for size in (8, 24, 48, 10)]

    def scores(values):
        padded = tf.pad(values, [[0, 0], [2, 2], [2, 2], [0, 0]])
        values = tf.nn.silu(tf.nn.conv2d(padded, first, 2, "VALID") + biases[0])
        values = tf.nn.silu(tf.nn.conv2d(values, second, 1, "SAME") + biases[1])
        values = tf.reshape(tf.nn.avg_pool2d(values, 2, 2, "VALID"), [-1, 24 * 7 * 7])
        values = tf.nn.silu(tf.matmul(values, hidden) + biases[2])
        return tf.matmul(values, output) + biases[3]

    return [first, second, hidden, output, *biases], scores


def made(tf, name):
    """Variables, scores and the shape of a batch."""
    if name == "small":
        return *dense(tf, [64, 512, 512, 10]), (256, 64)
    if name == "large":
        return *dense(tf, [784, 4096, 4096, 10]), (64, 784)
    return *images(tf), (64, 28, 28, 1)


def work(name, rank, workers, seconds):
    os.environ.update({"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"})
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1 if workers == 1 else 2)
    strategy = tf.distribute.get_strategy()
    if workers > 1:
        ring = tf.distribute.experimental.CommunicationImplementation.RING
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(implementation=ring))
    with strategy.scope():
        variables, scores, shape = made(tf, name)
    random = np.random.default_rng(rank)
    inputs = tf.constant(random.random(shape, np.float32))
    labels = tf.constant(np.arange(shape[0]) % 10)

    def replica_step():
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores(inputs))
            loss = tf.reduce_mean(losses) / workers
        gradients = tape.gradient(loss, variables)
        if workers > 1:
            replica = tf.distribute.get_replica_context()
            gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for variable, gradient in zip(variables, gradients):
            variable.assign_sub(0.01 * gradient)
        return loss

    @tf.function(autograph=False)
    def function():
        return strategy.run(replica_step)

    @tf.function(autograph=False)
    def chiefs(decision):
        def reduced():
            replica = tf.distribute.get_replica_context()
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(decision))
        return strategy.run(reduced)

    def all_go_on(goes_on):
        if workers == 1:
            return goes_on
        # Only the first worker decides, between rounds of steps.
        return float(chiefs(tf.constant(float(goes_on) if rank == 0 else 0.0))) > 0.5

    steps, elapsed = Steps(lambda: float(function()), seconds).run(all_go_on)
    if rank == 0:
        row("tf-mwms", name, workers, steps * shape[0] * workers / elapsed)
    # The service of a worker that has ended makes the others report it lost.
    sys.stdout.flush()
    os._exit(0)


def environment(addresses, rank):
    own = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    if len(addresses) > 1:
        own["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
    return own


if __name__ == "__main__":
    launch(work, environment)
