//! Several clients as threads of one process: meshes they agree or disagree on, errors of one
//! client that all report, barriers, and which client owns which rank.

use meshwork_testing::in_threads;

use super::*;
use crate::device_placement::RankLocation;

/// Runs each client as a thread of its own, and returns what they end with, in their order.
fn clients<R: Send>(count: u32, run: impl Fn(Context) -> R + Sync) -> Vec<R> {
    in_threads(Group::local(count).unwrap(), |group| {
        let client = Client::new("worker", group.rank().number(), count).unwrap();
        let client = client.with_devices("CPU", 2).unwrap();
        run(Context::from_group(client, group).unwrap())
    })
}

#[test]
fn clients_that_agree_know_where_every_rank_is() {
    let device_placement = clients(4, |context| {
        let mesh = CreateMesh::new().dims([("x", 4), ("y", 2)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        let device_placement = context.device_placement(&mesh).unwrap();
        assert_eq!(device_placement.local().len(), 2);
        let device_placement: Vec<RankLocation> = mesh
            .ranks()
            .map(|rank| device_placement.of_rank(rank))
            .collect();
        context.leave().unwrap();
        device_placement
    });
    let home = |rank: usize| RankLocation {
        client: rank / 2,
        place: rank % 2,
    };
    let expected: Vec<RankLocation> = (0..8).map(home).collect();
    assert!(
        device_placement.iter().all(|found| *found == expected),
        "{device_placement:?}"
    );
}

#[test]
fn clients_that_make_different_meshes_are_all_told_the_same() {
    let told = clients(3, |context| {
        let sizes = if context.index() == 2 { [3, 2] } else { [2, 3] };
        let mesh = CreateMesh::new().dims([("x", sizes[0]), ("y", sizes[1])]);
        context.create_distributed_mesh(mesh).unwrap_err()
    });
    assert!(
        matches!(
            &told[0],
            Error::ClientsDisagree {
                subject: Subject::Mesh,
                ..
            }
        ),
        "{told:?}"
    );
    let text = told[0].to_string();
    assert!(text.contains("clients 0, 1 have \"|x=2,y=3|"), "{text}");
    assert!(text.contains("client 2 has \"|x=3,y=2|"), "{text}");
    assert_eq!(text.matches(file!()).count(), 2, "{text}");
    assert!(told.iter().all(|error| *error == told[0]), "{told:?}");
}

#[test]
fn a_client_that_cannot_make_its_mesh_tells_the_others() {
    let told = clients(2, |context| {
        let kind = if context.index() == 1 { "GPU" } else { "CPU" };
        let mesh = CreateMesh::new().dims([("x", 4)]).device_type(kind);
        context
            .create_distributed_mesh(mesh)
            .unwrap_err()
            .to_string()
    });
    assert!(
        told[0].contains("client 1") && told[0].contains("GPU"),
        "{told:?}"
    );
    assert_eq!(told[0], told[1]);
}

#[test]
fn barriers_of_different_names_are_told_apart() {
    let told = clients(2, |context| {
        context.check_barriers();
        context.barrier("epoch").unwrap();
        context
            .barrier(["save", "load"][context.index() as usize])
            .unwrap_err()
    });
    let Error::ClientsDisagree { subject, views } = &told[0] else {
        panic!("{told:?}");
    };
    let said: Vec<&str> = views.iter().map(|view| view.said()).collect();
    assert_eq!(
        (*subject, said),
        (Subject::Barrier, vec!["save:1", "load:1"])
    );
    assert!(views.iter().all(|view| view.caller().starts_with(file!())));
    assert_eq!(told[0], told[1]);
}

/// A statement begins with its length, and an announcement is no length.
#[test]
fn clients_that_do_things_of_different_kinds_are_told_by_their_group() {
    let told = clients(2, |context| {
        context.check_barriers();
        let mesh = CreateMesh::new().dims([("x", 4)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        let rows = Layout::batch_sharded(&mesh, "x", 1).unwrap();
        let rows = context.zeros::<f32>(&[4], &rows).unwrap();
        match context.index() {
            0 => context.barrier("save").unwrap_err(),
            _ => rows.replicate().unwrap_err(),
        }
    });
    assert!(
        told.iter().all(|error| matches!(error, Error::Group(_))),
        "{told:?}"
    );
}

#[test]
fn devices_of_others_need_a_process_group_and_own_ones_have_to_exist() {
    let client = Client::new("localhost", 0, 1)
        .unwrap()
        .with_devices("CPU", 2)
        .unwrap();
    let context = Context::alone(client.clone());
    let all = client.with_devices("CPU", 3).unwrap();
    let mesh = CreateMesh::new().create(&all).unwrap();
    let device = "/job:localhost/replica:0/task:0/device:CPU:2".to_owned();
    let available = 2;
    assert_eq!(
        context.device_placement(&mesh).unwrap_err(),
        Error::UnknownDevice { device, available }
    );
    let first = Client::new("localhost", 0, 2)
        .unwrap()
        .with_devices("CPU", 2)
        .unwrap();
    let mesh = CreateMesh::new()
        .dims([("x", 4)])
        .create_distributed(&first)
        .unwrap();
    assert!(matches!(
        context.device_placement(&mesh),
        Err(Error::RemoteMesh { remote: 2, .. })
    ));
}
