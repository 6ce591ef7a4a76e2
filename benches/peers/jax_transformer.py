"""The StableHLO that JAX lowers for the step of `meshwork_dtensor::Transformer`, for `compiled --module`.

    python jax_transformer.py [--mesh 2x2] > transformer.mlir

The sizes are those of the benchmark: 8 sequences of 32 tokens of 64, width 64, 4 heads, 2 layers, AdamW. Batches are cut
along `data`; heads, and the inner width, along `model`. The text says how arguments and results are cut by
`mhlo.sharding`, and its first line what one device is given, so that whoever runs it need not read the rest. Needs jax
0.6 with two virtual devices or more, which it asks for itself.
"""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--mesh", default="2x2", help="parts of the batch, and of the model")
DATA, MODEL = (int(part) for part in parser.parse_args().mesh.split("x"))
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DATA * MODEL}"

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

jax.config.update("jax_use_shardy_partitioner", False)
BATCH, LENGTH, TOKENS, WIDTH, HEADS, LAYERS = 8, 32, 64, 64, 4, 2
RATE, DECAY, BETAS, EPSILON = 0.01, 0.01, (0.9, 0.999), 1e-8
WHOLE, OUT, BACK = PartitionSpec(), PartitionSpec(None, "model"), PartitionSpec("model", None)
ROWS = PartitionSpec("data")

LAYER = [((WIDTH, WIDTH), OUT)] * 3 + [((WIDTH, WIDTH), BACK)]
LAYER += [((WIDTH, 4 * WIDTH), OUT), ((4 * WIDTH, WIDTH), BACK)]
WEIGHTS = [((TOKENS, WIDTH), WHOLE)] + LAYER * LAYERS + [((WIDTH, TOKENS), WHOLE)]


def normal(hidden):
    centred = hidden - hidden.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def attended(hidden, query, key, value, outcome):
    rows = normal(hidden)

    def by_head(weights):
        return (rows @ weights).reshape(BATCH, LENGTH, HEADS, -1).transpose(0, 2, 1, 3)

    query, key, value = by_head(query), by_head(key), by_head(value)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(WIDTH // HEADS).astype(np.float32)
    scores = jnp.where(np.tri(LENGTH, dtype=bool), scores, -jnp.inf)
    seen = jax.nn.softmax(scores) @ value
    return seen.transpose(0, 2, 1, 3).reshape(BATCH * LENGTH, WIDTH) @ outcome


def loss_of(weights, tokens, following):
    hidden = weights[0][tokens]
    for layer in range(LAYERS):
        query, key, value, outcome, out, back = weights[1 + 6 * layer : 7 + 6 * layer]
        hidden += attended(hidden, query, key, value, outcome)
        hidden += jax.nn.gelu(normal(hidden) @ out, approximate=True) @ back
    scores = jax.nn.log_softmax(normal(hidden) @ weights[-1])
    return -jnp.take_along_axis(scores, following[:, None], 1).mean()


def step(count, weights, means, squares, tokens, following):
    loss, slopes = jax.value_and_grad(loss_of)(weights, tokens, following)
    count += 1.0
    kept, rest = BETAS, [1 - beta for beta in BETAS]
    means = [kept[0] * mean + rest[0] * slope for mean, slope in zip(means, slopes)]
    squares = [kept[1] * square + rest[1] * slope**2 for square, slope in zip(squares, slopes)]

    def moved(weight, mean, square):
        mean, square = mean / (1 - kept[0] ** count), square / (1 - kept[1] ** count)
        return weight - RATE * (mean / (jnp.sqrt(square) + EPSILON) + DECAY * weight)

    weights = [moved(*own) for own in zip(weights, means, squares)]
    return (count, weights, means, squares), loss


mesh = Mesh(np.array(jax.devices()).reshape(DATA, MODEL), ("data", "model"))
as_weights = [NamedSharding(mesh, spec) for _, spec in WEIGHTS]
whole, rows = NamedSharding(mesh, WHOLE), NamedSharding(mesh, ROWS)
state = (whole, as_weights, as_weights, as_weights)
numbers = [jax.ShapeDtypeStruct(shape, np.float32) for shape, _ in WEIGHTS]
indices = jax.ShapeDtypeStruct((BATCH * LENGTH,), np.int32)
arguments = (jax.ShapeDtypeStruct((), np.float32), numbers, numbers, numbers, indices, indices)
shardings = (*state, rows, rows)
lowered = jax.jit(step, in_shardings=shardings, out_shardings=(state, whole)).lower(*arguments)
own = zip(jax.tree.leaves(arguments), jax.tree.leaves(shardings))
own = [f"{value.dtype.name}{list(sharding.shard_shape(value.shape))}" for value, sharding in own]
print("//", " ".join(own).replace(", ", "x"))
print(lowered.as_text())
