//! Ranks that only say that they are ranks, each with a server of its own.

use std::sync::Arc;
use std::time::Instant;

use meshwork_collectives::{Group, Rank, ReduceOp, Statistics};
use meshwork_status::{Number, NumberKind, Report, Server, Settings, Source};

/// One of a job that makes twenty operations in a second and waits most of its time.
struct Simulated {
    like: Statistics,
    rank: u32,
    members: Arc<Vec<String>>,
    began: Instant,
}

impl Source for Simulated {
    fn report(&self) -> Report {
        let (mut group, age) = (self.like.clone(), self.began.elapsed());
        group.rank = Rank::new(self.rank);
        group.address = self.members[self.rank as usize].clone();
        group.world = u32::try_from(self.members.len()).unwrap();
        (group.age, group.in_operations) = (age, age.mul_f64(0.75));
        group.traffic[0].operations = (20.0 * age.as_secs_f64()) as u64;
        let samples = Number {
            name: "training_samples_per_second",
            help: "Samples",
            kind: NumberKind::Gauge,
            value: 1234.0,
        };
        Report {
            group,
            numbers: vec![samples],
        }
    }

    fn dump(&self) -> String {
        let operations = (0..8_u64).map(|place| {
            let began = 1_000_000 + 1000 * place;
            format!(
                r#"{{"what":"barrier","site":"a.rs:1","began":{began},"ended":{},"waits":[]}}"#,
                began + 700
            )
        });
        let operations = operations.collect::<Vec<_>>().join(",");
        let rank = self.rank;
        format!(r#"{{"rank":{rank},"written":1010000,"operations":[{operations}]}}"#)
    }

    fn members(&self) -> Vec<String> {
        self.members.to_vec()
    }
}

/// The servers of so many ranks, eight to a host, which find each other in a folder.
pub(crate) struct Ranks {
    pub(crate) servers: Vec<Option<Server>>,
    _folder: tempfile::TempDir,
}

impl Ranks {
    pub(crate) fn start(world: u32) -> Self {
        let mut group = Group::local(1).unwrap().remove(0);
        group
            .all_reduce(&mut [1.0_f32; 256], ReduceOp::Sum)
            .unwrap();
        let like = group.statistics();
        let folder = tempfile::tempdir().unwrap();
        let members: Vec<_> = (0..world)
            .map(|rank| format!("node{}:{}", rank / 8, 4000 + rank % 8))
            .collect();
        let (members, began) = (Arc::new(members), Instant::now());
        let settings = Settings::new(([127, 0, 0, 1], 0).into()).unwrap();
        let settings = settings.with_folder(folder.path());
        let server = |rank| {
            let source = Simulated {
                like: like.clone(),
                rank,
                members: members.clone(),
                began,
            };
            Some(Server::start(&settings, Arc::new(source)).unwrap())
        };
        Self {
            servers: (0..world).map(server).collect(),
            _folder: folder,
        }
    }

    pub(crate) fn address(&self, rank: usize) -> String {
        self.servers[rank].as_ref().unwrap().address().to_string()
    }
}
