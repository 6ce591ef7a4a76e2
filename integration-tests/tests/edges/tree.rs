//! Every package that a build of one member needs, those from elsewhere included.

use std::collections::BTreeSet;
use std::process::Command;

/// Packages that speak HTTP or TLS, or that only those need.
const NETWORK: &[&str] = &[
    "aws-lc-rs",
    "curl",
    "gcp_auth",
    "h2",
    "http",
    "hyper",
    "isahc",
    "kube",
    "kube-client",
    "native-tls",
    "openssl",
    "openssl-sys",
    "reqwest",
    "ring",
    "rustls",
    "tokio",
    "ureq",
];

/// Those of [`NETWORK`] that the member needs with the features it has by default.
pub(crate) fn network_packages(package: &str) -> Vec<String> {
    let needed = packages(package);
    let network = NETWORK.iter().map(|name| (*name).to_owned());
    network.filter(|name| needed.contains(name)).collect()
}

fn packages(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}", "--package", package])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap_or_else(|error| panic!("cargo tree: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree: {complaint}");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = shown.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}
