//! Device names and meshes, beside what TensorFlow made of them.

#[path = "mesh/answers.rs"]
pub(crate) mod answers;
#[path = "mesh/constructor.rs"]
mod constructor;
#[path = "mesh/coords.rs"]
mod coords;
#[path = "mesh/create.rs"]
mod create;
#[path = "mesh/device.rs"]
mod device;
#[path = "mesh/excuses.rs"]
mod excuses;
#[path = "mesh/forms.rs"]
mod forms;
#[path = "mesh/tpu.rs"]
mod tpu;

use crate::harness::Topic;

pub(crate) const TOPICS: &[Topic] = &[
    Topic::lines("device_string", "mesh/device_string.jsonl", device::judge),
    Topic::lines(
        "mesh_construct",
        "mesh/mesh_construct.jsonl",
        constructor::judge,
    ),
    Topic::lines("mesh_string", "mesh/mesh_string.jsonl", forms::judge_text),
    Topic::lines("mesh_proto", "mesh/mesh_proto.jsonl", forms::judge_proto),
    Topic::lines("mesh_coords", "mesh/mesh_coords.jsonl", coords::judge),
    Topic::lines("mesh_host", "mesh/mesh_host.jsonl", constructor::judge_host),
    Topic::lines("create_mesh", "mesh/create_mesh.jsonl", create::judge),
    Topic::lines(
        "create_distributed_mesh",
        "mesh/create_distributed_mesh.jsonl",
        create::judge_distributed,
    ),
    Topic::lines("tpu_ring", "mesh/tpu_ring.jsonl", tpu::judge),
];
