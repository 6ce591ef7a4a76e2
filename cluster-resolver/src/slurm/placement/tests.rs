//! Where ranks run, with what Slurm tells each task as the judge.

use std::io;

use super::*;
use crate::slurm::step::Own;

/// Files by path, distributions by step; what is missing cannot be had.
#[derive(Default)]
struct Known {
    files: Vec<(&'static str, &'static str)>,
    steps: Vec<(&'static str, &'static str)>,
}

impl Outside for Known {
    fn file(&self, path: &Path) -> Result<String, SlurmError> {
        let found = self
            .files
            .iter()
            .find(|(known, _)| Path::new(known) == path);
        let missing = || SlurmError::HostFile {
            path: path.to_owned(),
            kind: io::ErrorKind::NotFound,
        };
        Ok(found.ok_or_else(missing)?.1.to_owned())
    }

    fn distribution(&self, step: &str) -> Result<String, ScontrolProblem> {
        let found = self.steps.iter().find(|(known, _)| *known == step);
        Ok(found.ok_or(ScontrolProblem::Unknown)?.1.to_owned())
    }
}

/// Step 7.0 on nodes n1, n2, …, seen by this rank, which was told nothing about itself.
fn step(counts: &[u32], distribution: Option<&str>, rank: u32) -> Step {
    Step {
        rank,
        nodes: (1..=counts.len()).map(|node| format!("n{node}")).collect(),
        counts: counts.to_vec(),
        tasks: counts.iter().sum(),
        distribution: distribution.map(str::to_owned),
        plane_size: None,
        host_file: None,
        parts: Vec::new(),
        job: "7".to_owned(),
        step: "0".to_owned(),
        own: Own::default(),
    }
}

/// What Slurm tells each task when its ranks run on these nodes.
fn told(mut step: Step, nodes: &[usize]) -> Step {
    let rank = step.rank as usize;
    let same = (0..).zip(nodes).filter(|&(_, node)| *node == nodes[rank]);
    let ranks: Vec<u32> = same.map(|(rank, _)| rank).collect();
    let local = ranks.iter().position(|&other| other == step.rank).unwrap();
    step.own = Own {
        node: Some(step.nodes[nodes[rank]].clone()),
        local: u32::try_from(local).ok(),
        ranks: Some(ranks),
    };
    step
}

/// Every rank, told what Slurm tells it, finds these nodes for all ranks.
#[track_caller]
fn check(of_rank: impl Fn(u32) -> Step, known: &Known, nodes: &[usize]) {
    for rank in 0..u32::try_from(nodes.len()).unwrap() {
        let placed = place(&told(of_rank(rank), nodes), known).map(|placed| placed.nodes);
        assert_eq!(placed.as_deref(), Ok(nodes), "rank {rank}");
    }
}

#[test]
fn a_declared_distribution_is_followed() {
    let known = Known::default();
    let of = |distribution| move |rank| step(&[3, 1, 1], distribution, rank);
    check(of(None), &known, &[0, 0, 0, 1, 2]);
    check(of(Some("block:cyclic")), &known, &[0, 0, 0, 1, 2]);
    check(of(Some("cyclic")), &known, &[0, 1, 2, 0, 0]);
    let plane = |rank| Step {
        plane_size: Some(2),
        ..step(&[3, 1, 1], Some("plane"), rank)
    };
    check(plane, &known, &[0, 0, 1, 2, 0]);
}

#[test]
fn an_arbitrary_distribution_needs_its_file() {
    let of_rank = |rank| Step {
        host_file: Some("hosts".to_owned()),
        ..step(&[3, 1, 1], Some("arbitrary"), rank)
    };
    let known = Known {
        files: vec![("hosts", "n3\nn1\nn1\nn2\nn1\n")],
        ..Known::default()
    };
    check(of_rank, &known, &[2, 0, 0, 1, 0]);
    let missing = SlurmError::HostFile {
        path: "hosts".into(),
        kind: io::ErrorKind::NotFound,
    };
    assert_eq!(place(&of_rank(0), &Known::default()), Err(missing));
    let unnamed = place(&step(&[1, 1], Some("arbitrary"), 0), &known);
    assert_eq!(unnamed, Err(SlurmError::NoHostFile));
}

#[test]
fn a_plane_without_its_size_is_refused() {
    let variable = PLANE_SIZE;
    let placed = place(&step(&[2, 1], Some("plane"), 0), &Known::default());
    assert_eq!(placed, Err(SlurmError::Unset { variable }));
}

#[test]
fn an_undeclared_distribution_that_is_not_block_is_asked_for_and_else_refused() {
    let nodes = [0, 1, 0];
    let known = Known {
        steps: vec![("7.0", "CFCyclic")],
        ..Known::default()
    };
    let of_rank = |rank| step(&[2, 1], None, rank);
    check(of_rank, &known, &nodes);
    let placed = place(&told(of_rank(1), &nodes), &Known::default());
    let (step, problem) = ("7.0".to_owned(), ScontrolProblem::Unknown);
    assert_eq!(placed, Err(SlurmError::Unanswered { step, problem }));
}

#[test]
fn a_task_that_is_told_otherwise_refuses() {
    let declared = |rank| step(&[2, 1], Some("block"), rank);
    let refused = |step: Step| match place(&step, &Known::default()) {
        Err(SlurmError::Contradiction { variable, .. }) => variable,
        other => panic!("{other:?}"),
    };
    // The nodes are those of a cyclic distribution.
    let nodes = [0, 1, 0];
    assert_eq!(refused(told(declared(0), &nodes)), RANKS);
    assert_eq!(refused(told(declared(1), &nodes)), NODE);
    assert_eq!(refused(told(declared(2), &nodes)), NODE);
    let mut odd = declared(1);
    odd.own.local = Some(0);
    assert_eq!(refused(odd), LOCAL);
}

/// Two parts: n3 and n4 come before n1 and n2, each with its own distribution.
fn two_parts(rank: u32) -> Step {
    let part = |job: &str, nodes: [&str; 2]| Part {
        job: job.to_owned(),
        nodes: nodes.map(str::to_owned).to_vec(),
    };
    Step {
        parts: vec![part("7", ["n3", "n4"]), part("8", ["n1", "n2"])],
        ..step(&[3, 1, 3, 1], Some("block"), rank)
    }
}

#[test]
fn parts_follow_each_other_with_the_distribution_that_scontrol_knows() {
    let nodes = [2, 3, 2, 2, 0, 0, 0, 1];
    let known = Known {
        steps: vec![("7.0", "Cyclic"), ("8.0", "Block")],
        ..Known::default()
    };
    check(two_parts, &known, &nodes);
    let placed = place(&told(two_parts(0), &nodes), &Known::default());
    let (step, problem) = ("7.0".to_owned(), ScontrolProblem::Unknown);
    assert_eq!(placed, Err(SlurmError::Unanswered { step, problem }));
}

#[test]
fn parts_whose_order_does_not_matter_need_no_answer() {
    let of_rank = |rank| Step {
        counts: vec![1, 1, 3, 0],
        tasks: 5,
        ..two_parts(rank)
    };
    check(of_rank, &Known::default(), &[2, 2, 2, 0, 1]);
}

#[test]
fn a_step_in_one_part_is_an_ordinary_step() {
    let of_rank = |rank| Step {
        nodes: vec!["n1".to_owned(), "n2".to_owned()],
        counts: vec![2, 1],
        tasks: 3,
        distribution: Some("cyclic".to_owned()),
        ..two_parts(rank)
    };
    check(of_rank, &Known::default(), &[0, 1, 0]);
}

#[test]
fn parts_that_share_a_node_or_miss_one_are_refused() {
    let mut shared = two_parts(0);
    shared.parts[1].nodes.push("n3".to_owned());
    let node = "n3".to_owned();
    let placed = place(&shared, &Known::default());
    assert_eq!(placed, Err(SlurmError::SharedNode { node }));
    let mut stray = two_parts(0);
    stray.parts[1].nodes.pop();
    let node = "n2".to_owned();
    let placed = place(&stray, &Known::default());
    assert_eq!(placed, Err(SlurmError::StrayNode { node }));
}
