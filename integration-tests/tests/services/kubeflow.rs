//! The manifests for JobSet and Kubeflow Trainer, read by Kubeflow's own models of them.

use std::env;
use std::process::Command;

use meshwork_testing::Need;

/// The kinds that each manifest has.
const MANIFESTS: [(&str, &str); 3] = [
    ("jobset.yaml", "JobSet\n"),
    ("trainjob.yaml", "TrainingRuntime\nTrainJob\n"),
    ("trainjob-plain.yaml", "TrainingRuntime\nTrainJob\n"),
];

#[test]
fn manifests_have_only_fields_that_the_models_of_kubeflow_know() {
    let python = env::var_os("MESHWORK_PYTHON").unwrap_or_else(|| "python3".into());
    let modules = ["-c", "import kubeflow_trainer_api, yaml"];
    let found = Command::new(&python).args(modules).output();
    let found = found.is_ok_and(|found| found.status.success());
    let missing = format!("{} lacks one of the two", python.display());
    if Need::Kubeflow
        .or_skip(found.then_some(()).ok_or(missing))
        .is_none()
    {
        return;
    }
    let here = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/services/kubeflow/models.py"
    );
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/src/files/");
    for (name, kinds) in MANIFESTS {
        let read = Command::new(&python)
            .args([here, &format!("{files}{name}")])
            .output();
        let read = read.unwrap();
        let told = String::from_utf8(read.stdout).unwrap();
        let errors = String::from_utf8(read.stderr).unwrap();
        assert!(read.status.success(), "{name}: {errors}");
        assert_eq!(told, kinds, "{name}");
    }
}
