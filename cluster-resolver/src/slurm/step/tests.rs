//! Variables of a step that are missing, malformed, or contradict each other.

use super::*;
use crate::slurm::HostListProblem;

/// The variables of rank 1 of 3 on two nodes, with these changes; `None` takes one out.
fn variables(changes: &[(&str, Option<&str>)]) -> Variables {
    let mut all = vec![
        (JOB, Some("7")),
        (RANK, Some("1")),
        (TASKS, Some("3")),
        (NODES, Some("n[1-2]")),
        (COUNTS, Some("2,1")),
    ];
    for change in changes {
        all.retain(|(name, _)| *name != change.0);
        all.push(*change);
    }
    Variables::fixed(
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    )
}

#[track_caller]
fn check_refused(changes: &[(&str, Option<&str>)], expected: SlurmError) {
    let read = Step::read(&variables(changes), None, None);
    assert_eq!(read, Err(expected.into()), "{changes:?}");
}

#[test]
fn a_step_is_read_from_its_variables() {
    let own = [(NODE, Some("n1")), (LOCAL, Some("1")), (RANKS, Some("0,1"))];
    let step = Step::read(&variables(&own), None, None).unwrap();
    assert_eq!((step.rank, step.tasks), (1, 3));
    assert_eq!(step.nodes, ["n1", "n2"]);
    assert_eq!(step.counts, [2, 1]);
    let own = Own {
        node: Some("n1".to_owned()),
        local: Some(1),
        ranks: Some(vec![0, 1]),
    };
    assert_eq!(step.own, own);
    assert!(step.parts.is_empty());
}

#[test]
fn a_missing_variable_is_named() {
    for variable in [RANK, TASKS, NODES, COUNTS] {
        let job = "7".to_owned();
        let expected = SlurmError::NotInStep { variable, job };
        check_refused(&[(variable, None)], expected);
        let expected = SlurmError::Unset { variable };
        check_refused(&[(variable, None), (JOB, None)], expected);
    }
}

#[test]
fn every_malformed_variable_is_refused_with_its_value() {
    for variable in [RANK, TASKS, LOCAL, PLANE_SIZE, PARTS] {
        for wrong in ["", "x", "-1", "+1", "1.5", " 1", "4294967296"] {
            let value = wrong.to_owned();
            let expected = SlurmError::Number { variable, value };
            check_refused(&[(variable, Some(wrong))], expected);
        }
    }
    for wrong in ["", "0,", "0-1", "a"] {
        let (variable, value) = (RANKS, wrong.to_owned());
        let expected = SlurmError::Ranks { variable, value };
        check_refused(&[(RANKS, Some(wrong))], expected);
    }
    let (text, item) = ("2,x".to_owned(), "x".to_owned());
    check_refused(
        &[(COUNTS, Some("2,x"))],
        SlurmError::TaskCounts { text, item },
    );
    let expected = SlurmError::HostList {
        variable: NODES,
        list: "n[1-".to_owned(),
        problem: HostListProblem::Unclosed,
    };
    check_refused(&[(NODES, Some("n[1-"))], expected);
}

#[test]
fn variables_that_do_not_fit_each_other_are_refused() {
    let (nodes, counts) = (4, 2);
    let expected = SlurmError::NodesAndCounts { nodes, counts };
    check_refused(&[(NODES, Some("n[1-4]"))], expected);
    let (nodes, counts) = (2, 5);
    let expected = SlurmError::NodesAndCounts { nodes, counts };
    check_refused(&[(COUNTS, Some("1(x5)"))], expected);
    let node = "n1".to_owned();
    check_refused(&[(NODES, Some("n1,n1"))], SlurmError::NodeTwice { node });
    let (what, sum, tasks) = (Summed::Nodes, 3, 4);
    let expected = SlurmError::TaskSum { what, sum, tasks };
    check_refused(&[(TASKS, Some("4"))], expected);
    let (rank, tasks) = (3, 3);
    let expected = SlurmError::RankOutside { rank, tasks };
    check_refused(&[(RANK, Some("3"))], expected);
    let (tasks, most) = (4_000_000_000, 1 << 17);
    let huge = [(COUNTS, Some("4000000000,0")), (TASKS, Some("4000000000"))];
    check_refused(&huge, SlurmError::TooManyTasks { tasks, most });
}

#[test]
fn the_program_may_say_what_the_environment_does_not() {
    let without = variables(&[(COUNTS, None), (TASKS, None)]);
    let each = TasksPerNode::Each(2);
    let step = Step::read(&without, Some(&each), Some(4)).unwrap();
    assert_eq!((step.counts, step.tasks), (vec![2, 2], 4));
    let (what, sum, tasks) = (Summed::Jobs, 5, 4);
    let expected = SlurmError::TaskSum { what, sum, tasks };
    let read = Step::read(&without, Some(&each), Some(5));
    assert_eq!(read, Err(expected.into()));

    let without = variables(&[(COUNTS, None), (NODES, None), (NODE, Some("n1"))]);
    let named = TasksPerNode::Of(vec![("z".to_owned(), 2), ("a".to_owned(), 1)]);
    let step = Step::read(&without, Some(&named), None).unwrap();
    assert_eq!(step.nodes, ["z", "a"]);
    assert_eq!(step.own.node, None);
}

#[test]
fn a_heterogeneous_job_has_parts() {
    let step = Step::read(
        &variables(&[
            (PARTS, Some("2")),
            ("SLURM_JOB_NODELIST_PACK_GROUP_0", Some("n2")),
            ("SLURM_JOB_NODELIST_PACK_GROUP_1", Some("n[1,5]")),
            ("SLURM_JOB_ID_PACK_GROUP_0", Some("7")),
            ("SLURM_JOB_ID_PACK_GROUP_1", Some("8")),
        ]),
        None,
        None,
    );
    let parts = step.unwrap().parts;
    assert_eq!(parts[0].nodes, ["n2"]);
    assert_eq!((parts[1].job.as_str(), parts[1].nodes.len()), ("8", 2));
    let one = Step::read(&variables(&[(PARTS, Some("1"))]), None, None);
    assert!(one.unwrap().parts.is_empty());
}
