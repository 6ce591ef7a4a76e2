//! The corpus of the fuzz targets for clusters.

#[path = "../../fuzz/checks/cluster.rs"]
mod checks;
#[path = "../../fuzz/checks/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn cluster_bytes_are_read_or_refused() {
    replay("cluster_def", checks::cluster_def);
}

#[test]
fn configuration_texts_are_read_or_refused() {
    replay("tf_config", checks::tf_config);
}

#[test]
fn host_lists_are_read_or_refused() {
    replay("host_list", checks::host_list);
}

#[test]
fn variables_of_schedulers_are_read_or_refused() {
    replay("environment", checks::environment);
}
