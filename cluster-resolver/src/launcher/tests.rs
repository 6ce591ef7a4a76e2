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

/// The cluster of these variables, with one of them set to something else; empty is unset.
fn cluster(launcher: Launcher, change: (&str, &str)) -> Cluster {
    let of_launcher = match launcher {
        Launcher::Torchrun => &TORCH[..],
        Launcher::OpenMpi => &MPI[..],
    };
    let variables = Variables::fixed(of_launcher.iter().copied().chain([change]));
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
    for (variable, _) in TORCH {
        assert!(cluster(Launcher::Torchrun, (variable, "")).spec().is_err());
    }
    for (variable, _) in MPI {
        assert!(cluster(Launcher::OpenMpi, (variable, "")).spec().is_err());
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
fn several_hosts_are_refused_since_nobody_knows_their_addresses() {
    refused(
        Launcher::OpenMpi,
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
        "mpirun started 2 processes, 1 of them on this host, and does not say where the others \
         are: list the addresses of all in TF_CONFIG, or start them by srun",
    );
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
