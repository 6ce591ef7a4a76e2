//! `{"clients", "local_devices_per_client", "mesh_dims"}`: what each of several clients finds, who
//! make a mesh together, lay tensors out anew, reduce them and part. Clients are threads here;
//! processes do the same in a test of their own.

use meshwork_collectives::Group;
use meshwork_core::{CreateMesh, Mesh};
use meshwork_dtensor::{CLIENT_ID, JOBS};
use meshwork_dtensor::{Config, Context, DTensor, DeviceCounts, DeviceType, Environment, Error};
use meshwork_layout::Layout;
use meshwork_testing::in_threads;
use ndarray::ArrayD;
use serde_json::{Value, json};

use super::values::{differs, list, numbered, size};
use crate::deviations::dtensor::SHUT_DOWN_TOGETHER;
use crate::harness::Verdict;
use crate::mesh::answers::{compare, mesh_answer, text};

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    let count = u32::try_from(size(&input["clients"])).expect("a few clients");
    let expected = list(&case["expect"]["clients"]);
    let groups = Group::local(count).expect("a group of threads");
    let problems = in_threads(groups.into_iter().zip(expected), |(group, expected)| {
        judge_client(input, group, expected)
    });
    match problems.into_iter().flatten().next() {
        Some(problem) => Verdict::Failed(problem),
        None if expected.len() != count as usize => Verdict::Failed("answers missing".to_owned()),
        // Everything else is as recorded; parting is what TensorFlow refuses.
        None if expected
            .iter()
            .any(|client| client["shutdown"].get("kind").is_some()) =>
        {
            Verdict::by(SHUT_DOWN_TOGETHER)
        }
        None => Verdict::Passed,
    }
}

/// What a client does otherwise than recorded.
fn judge_client(input: &Value, group: Group, expected: &Value) -> Option<String> {
    let clients = group.world();
    let jobs: Vec<String> = (0..clients)
        .map(|client| format!("host{client}:1"))
        .collect();
    let id = group.rank().number().to_string();
    let environment = Environment::new([(JOBS, jobs.join(",")), (CLIENT_ID, id)]);
    let devices = u32::try_from(size(&input["local_devices_per_client"])).expect("a few devices");
    let config = Config::new(environment, DeviceCounts::cpus(devices));
    let context = config
        .client()
        .and_then(|client| Context::from_group(client, group));
    let fields = expected.as_object().expect("recorded answers are objects");
    let compared = context.and_then(|context| {
        let mut program = Program::start(&context, input)?;
        for (field, expected) in fields {
            if let Some(how) = program.differs(&config, field, expected)? {
                return Ok(Some(format!("{field}: {how}")));
            }
        }
        Ok(None)
    });
    compared.unwrap_or_else(|error| Some(error.to_string()))
}

/// The recorded program, which every client runs in the same order.
struct Program {
    context: Context,
    mesh: Mesh,
    vector: DTensor<i32>,
    packed: DTensor<i32>,
}

impl Program {
    fn start(context: &Context, input: &Value) -> Result<Self, Error> {
        let dims = list(&input["mesh_dims"])
            .iter()
            .map(|dim| (text(&dim[0]), size(&dim[1])));
        let dims: Vec<_> = dims.collect();
        let mesh = CreateMesh::new().dims(dims.clone()).name("mc");
        let mesh = context.create_distributed_mesh(mesh)?;
        let whole = Layout::replicated(&mesh, 1);
        let vector = context.copy_to_mesh(numbered::<i32>(&[8]), &whole)?;
        // Every device packs its own number.
        let names = dims.iter().map(|(name, _)| *name);
        let cut = Layout::from_names(names, &mesh)?;
        let blocks = mesh.local_ranks().map(|rank| {
            let number = i32::try_from(rank.index()).unwrap_or(i32::MAX);
            ArrayD::from_elem(vec![1; dims.len()], number)
        });
        let packed = context.pack(blocks.collect::<Vec<_>>(), &cut)?;
        Ok(Self {
            context: context.clone(),
            mesh,
            vector,
            packed,
        })
    }

    fn differs(
        &mut self,
        config: &Config,
        field: &str,
        expected: &Value,
    ) -> Result<Option<String>, Error> {
        let cut = || Layout::batch_sharded(&self.mesh, self.mesh.dims()[0].name().as_str(), 1);
        let told = |found: Value| (found != *expected).then(|| format!("{found} for {expected}"));
        Ok(match field {
            "client_id" => told(json!(config.client_id()?)),
            "full_job_name" => told(json!(config.full_job_name()?)),
            "job_name" => told(json!(config.job_name()?)),
            "num_global_devices" => told(json!(config.num_global_devices(DeviceType::Cpu)?)),
            "mesh" => match compare(expected, |field| mesh_answer(&self.mesh, field)) {
                Verdict::Passed => None,
                other => Some(format!("{other:?}")),
            },
            "relayout_plain_to_replicated" => differs(&self.vector, expected),
            "replicated_to_x" => differs(&self.vector.relayout(&cut()?)?, expected),
            "x_to_replicated" => differs(&self.vector.relayout(&cut()?)?.replicate()?, expected),
            "reduce_sum_x" => differs(&self.vector.relayout(&cut()?)?.sum_all()?, expected),
            "pack_fully_sharded" => differs(&self.packed, expected),
            "reduce_sum_packed" => differs(&self.packed.sum_all()?, expected),
            "packed_to_replicated" => differs(&self.packed.replicate()?, expected),
            "barrier" => {
                self.context.barrier("recorded")?;
                told(json!("ok"))
            }
            "shutdown" => {
                self.context.leave()?;
                let moved = self.packed.replicate();
                // Tensors of several clients cannot be moved between them any more.
                let is_over = moved.is_err() || self.context.is_alone();
                (!is_over).then(|| format!("{moved:?} after the end"))
            }
            _ => Some("the field is not known".to_owned()),
        })
    }
}
