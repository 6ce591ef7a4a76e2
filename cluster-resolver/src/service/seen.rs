use crate::resolver::format_master;
use crate::text::Counts;
use crate::{Accelerators, ClusterSpec, Error, Explanation, Question};

/// The answers of one look at a service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) spec: ClusterSpec,
    pub(crate) task_type: Option<String>,
    pub(crate) task_id: Option<u32>,
    pub(crate) rpc_layer: Option<String>,
    pub(crate) accelerators: Accelerators,
}

impl Seen {
    /// The task asked for, where this process fills in what the call leaves out; the empty text if
    /// that leaves a part of it unknown, or if there are no jobs at all. An empty layer in the call
    /// does not hide the own one.
    pub(crate) fn master(
        &self,
        task_type: Option<&str>,
        task_id: Option<u32>,
        rpc_layer: Option<&str>,
    ) -> Result<String, Error> {
        let job = task_type.or(self.task_type.as_deref());
        let (Some(job), Some(index)) = (job, task_id.or(self.task_id)) else {
            return Ok(String::new());
        };
        if self.spec.is_empty() {
            return Ok(String::new());
        }
        let address = self.spec.task_address(job, index)?;
        let layer = rpc_layer.filter(|layer| !layer.is_empty());
        Ok(format_master(layer.or(self.rpc_layer.as_deref()), address))
    }
}

/// Notes the answers of a look that has been noted, or why there are none.
pub(crate) fn settle(
    notes: &mut Explanation,
    looked: Result<Seen, Error>,
    own_master: fn(&Seen) -> Result<String, Error>,
) {
    let seen = match looked {
        Ok(seen) => seen,
        Err(error) => return notes.fail(Question::Cluster, error),
    };
    notes.conclude(Question::Cluster, Counts(&seen.spec).to_string());
    let task = match (&seen.task_type, seen.task_id) {
        (None, None) => "not known".to_owned(),
        (job, id) => {
            let id = id.map_or_else(|| "?".to_owned(), |id| id.to_string());
            format!("{}:{id}", job.as_deref().unwrap_or("?"))
        }
    };
    notes.conclude(Question::Task, task);
    notes.settle(Question::Master, own_master(&seen));
    if let Some(layer) = &seen.rpc_layer {
        notes.conclude(Question::RpcLayer, layer.clone());
    }
    let each = seen.accelerators.iter();
    let each: Vec<_> = each
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    if !each.is_empty() {
        notes.conclude(Question::Accelerators, each.join(", "));
    }
}
