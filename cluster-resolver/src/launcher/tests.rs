//! What each launcher's variables mean, and which are refused.

use super::*;

const TORCH: [(&str, &str); 5] = [
    ("RANK", "1"),
    ("WORLD_SIZE", "2"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "::1"),
    ("MASTER_PORT", "29500"),
];

const MPI: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "prterun-n1-77@1"),
];

const MPICH: [(&str, &str); 4] = [
    ("PMI_RANK", "1"),
    ("PMI_SIZE", "2"),
    ("MPI_LOCALNRANKS", "2"),
    ("MASTER_PORT", "29500"),
];

/// What it sets where all are on one host.
fn variables(launcher: Launcher) -> &'static [(&'static str, &'static str)] {
    match launcher {
        Launcher::Torchrun => &TORCH,
        Launcher::OpenMpi => &MPI,
        Launcher::Mpich => &MPICH,
    }
}

/// The cluster of these variables, with one of them set to something else; empty is unset.
fn cluster(launcher: Launcher, change: (&str, &str)) -> Cluster {
    let variables = Variables::fixed(variables(launcher).iter().copied().chain([change]));
    let resolver = LauncherResolver::from_variables(launcher, variables);
    resolver.snapshot().unwrap()
}

#[track_caller]
fn refused(launcher: Launcher, change: (&str, &str), message: &str) {
    let error = cluster(launcher, change).placement().unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn all_ranks_of_one_host_know_the_same_addresses() {
    for &launcher in Launcher::ALL {
        let rank_variable = launcher.names().rank;
        let of_rank = |rank| {
            cluster(launcher, (rank_variable, rank))
                .placement()
                .unwrap()
        };
        let (first, second) = (of_rank("0"), of_rank("1"));
        assert_eq!((first.rank(), second.rank()), (0, 1));
        assert_eq!(first.addresses(), second.addresses());
        assert_eq!(first.world(), 2);
    }
}

#[test]
fn an_ipv6_address_of_the_master_is_put_in_brackets() {
    let placement = cluster(Launcher::Torchrun, ("", "")).placement().unwrap();
    assert_eq!(placement.addresses(), ["[::1]:61045", "[::1]:61046"]);
}

#[test]
fn what_is_missing_is_named_with_the_launcher_that_sets_it() {
    refused(
        Launcher::Torchrun,
        ("MASTER_PORT", ""),
        "MASTER_PORT is not set: start this process by torchrun, or set it as torchrun does",
    );
    refused(
        Launcher::OpenMpi,
        ("PMIX_NAMESPACE", ""),
        "PMIX_NAMESPACE is not set: start this process by mpirun, or set it as mpirun does",
    );
    refused(
        Launcher::Mpich,
        ("MASTER_PORT", ""),
        "MASTER_PORT is not set, and mpiexec does not set it: set it for all processes, to a number \
         from 1 to 65535 that no other job on these hosts has",
    );
    for (variable, _) in TORCH.into_iter().chain(MPI).chain(MPICH) {
        for &launcher in Launcher::ALL {
            let mut own = variables(launcher).iter();
            let is_own = own.any(|(known, _)| *known == variable);
            let spec = cluster(launcher, (variable, ""));
            assert_eq!(spec.spec().is_err(), is_own, "{variable}");
        }
    }
}

#[test]
fn wrong_numbers_are_refused_with_their_value_and_range() {
    refused(
        Launcher::Torchrun,
        ("RANK", "2"),
        "RANK is 2, but WORLD_SIZE is 2: number the processes from 0 to one less than WORLD_SIZE",
    );
    refused(
        Launcher::Torchrun,
        ("MASTER_PORT", "65536"),
        "MASTER_PORT is 65536: make it a whole number from 1 to 65535",
    );
    for wrong in ["0", "-1", "two", "4537", "99999999999"] {
        let message = format!("WORLD_SIZE is {wrong}: make it a whole number from 1 to 4536");
        refused(Launcher::Torchrun, ("WORLD_SIZE", wrong), &message);
    }
}

#[test]
fn several_hosts_are_refused_where_nobody_says_where_to_meet() {
    refused(
        Launcher::OpenMpi,
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
        "mpirun started 2 processes, not all of them on this host, and does not say where the others \
         are: set MASTER_ADDR and MASTER_PORT for all, the host of rank 0 and a UDP port that is \
         free there",
    );
    refused(
        Launcher::Torchrun,
        ("LOCAL_WORLD_SIZE", "3"),
        "LOCAL_WORLD_SIZE is 3: make it a whole number from 1 to 2",
    );
}

#[test]
fn the_processes_of_several_hosts_meet_where_all_are_told() {
    for &launcher in Launcher::ALL {
        let (names, variables) = (launcher.names(), variables(launcher));
        let several = [
            (names.world, "4"),
            (names.rank, "3"),
            (MASTER_ADDR, "::1"),
            (MASTER_PORT, "29500"),
        ];
        let of_last = Variables::fixed(variables.iter().copied().chain(several));
        let resolver = LauncherResolver::from_variables(launcher, of_last);
        let cluster = resolver.snapshot().unwrap();
        let endpoint = cluster.rendezvous().unwrap();
        assert_eq!(endpoint.address(), "[::1]:29500");
        assert_eq!((endpoint.rank(), endpoint.world()), (3, 4));
        let port = endpoint.port();
        let first = Variables::fixed(
            variables
                .iter()
                .copied()
                .chain(several)
                .chain([(names.rank, "0")]),
        );
        let first = LauncherResolver::from_variables(launcher, first)
            .snapshot()
            .unwrap();
        assert_eq!(first.rendezvous().unwrap().port() + 3, port);
        let not_met = cluster.placement().unwrap_err().to_string();
        assert!(
            not_met.contains("known once all have met at [::1]:29500"),
            "{not_met}"
        );
        let few = vec!["a:1".to_owned()];
        let refused = cluster.clone().with_addresses(few).unwrap_err().to_string();
        assert!(
            refused.starts_with("1 processes have met instead of 4"),
            "{refused}"
        );
        let all = ["a:1", "a:2", "b:1", "b:2"].map(str::to_owned);
        let met = cluster.with_addresses(all.to_vec()).unwrap();
        assert_eq!(
            (met.placement().unwrap().rank(), met.rendezvous()),
            (3, None)
        );
        assert_eq!(met.placement().unwrap().addresses(), all);
    }
}

#[test]
fn on_several_hosts_each_rank_has_its_port_from_the_base_that_is_set() {
    for &launcher in Launcher::ALL {
        let (names, variables) = (launcher.names(), variables(launcher));
        let more = [
            (names.world, "4"),
            (names.rank, "3"),
            (MASTER_ADDR, "n1"),
            (MASTER_PORT, "29500"),
            (ports::VARIABLE, "4000"),
        ];
        let variables = Variables::fixed(variables.iter().copied().chain(more));
        let resolver = LauncherResolver::from_variables(launcher, variables);
        let cluster = resolver.snapshot().unwrap();
        let endpoint = cluster.rendezvous().unwrap();
        assert_eq!((endpoint.address(), endpoint.port()), ("n1:29500", 4003));
    }
}

#[test]
fn whoever_sets_no_local_number_lets_all_meet() {
    let cluster = cluster(Launcher::Torchrun, ("LOCAL_WORLD_SIZE", ""));
    assert_eq!(cluster.rendezvous().unwrap().address(), "[::1]:29500");
}

#[test]
fn the_explanation_names_every_variable() {
    let shown = cluster(Launcher::Torchrun, ("", ""))
        .explanation()
        .to_string();
    for (variable, value) in TORCH {
        assert!(
            shown.contains(&format!("variable {variable}: {value}")),
            "{shown}"
        );
    }
}
