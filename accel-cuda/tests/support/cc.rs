//! What the system's C compiler makes for a test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use twox_hash::XxHash3_64;

/// Makes a program or, where its name ends in `.so`, a library of one file of `tests/c`, and says
/// where it is: in the target folder, named by all that it was made from, so it is made once.
#[track_caller]
#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) fn compiled(source: &str, name: &str, defines: &[&str]) -> PathBuf {
    let here = folder();
    let parts = [
        format!("tests/c/{source}"),
        "tests/c/host.h".to_owned(),
        "src/kernels.cu".to_owned(),
        "src/kernels/tensors.cu".to_owned(),
        "src/kernels/choices.cu".to_owned(),
    ];
    let texts = parts.map(|part| fs::read_to_string(here.join(part)).expect("it is there"));
    let made_from = format!("{}{}{}", texts.concat(), defines.join(" "), FLAGS.join(" "));
    let hash = XxHash3_64::oneshot(made_from.as_bytes());
    let folder = scratch().join("c").join(format!("{hash:016x}"));
    let result = folder.join(name);
    if !result.exists() {
        fs::create_dir_all(&folder).expect("the target folder is writable");
        // What other tests are making is waited for.
        let lock = fs::File::create(folder.join("lock")).expect("the target folder is writable");
        lock.lock()
            .expect("files of the target folder can be locked");
        if result.exists() {
            return result;
        }
        // Moved to its place as a whole, as the maker may be killed.
        let beside = tempfile::tempdir_in(&folder).expect("the target folder is writable");
        let made = beside.path().join(name);
        compile(source, &made, defines);
        fs::rename(made, &result).expect("the target folder is writable");
    }
    result
}

#[track_caller]
#[allow(dead_code, reason = "each test file takes what it needs")]
fn compile(source: &str, result: &Path, defines: &[&str]) {
    let here = folder();
    let mut command = cc();
    if result.extension().is_some_and(|end| end == "so") {
        command.args(["-shared", "-fPIC", "-Wl,-z,defs"]);
    } else {
        command.arg("-rdynamic");
    }
    // Contracted or reordered floats would be other bits; so would memory read as another type.
    command.args([
        "-std=gnu11",
        "-O1",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
    ]);
    command.args(["-Wall", "-Wextra", "-Wno-maybe-uninitialized", "-Werror"]);
    command.args(defines.iter().map(|define| format!("-D{define}")));
    command.arg("-I").arg(here.join("src"));
    command.arg(here.join("tests/c").join(source));
    command
        .arg("-o")
        .arg(result)
        .args(["-ldl", "-lm", "-lpthread"]);
    let output = command
        .output()
        .expect("a C compiler, which the project needs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}");
}

/// Contracted or reordered floats would be other bits; so would memory read as another type.
#[allow(dead_code, reason = "each test file takes what it needs")]
const FLAGS: [&str; 8] = [
    "-std=gnu11",
    "-O1",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Wno-maybe-uninitialized",
    "-Werror",
];

/// This package, whose sources tests of other packages take too.
#[allow(dead_code, reason = "each test file takes what it needs")]
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../accel-cuda")
}

/// The C compiler that `CC` names, or the system's.
#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) fn cc() -> Command {
    Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// A folder in the target folder that tests may write to.
#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) fn scratch() -> PathBuf {
    let this = env::current_exe().expect("a test is a program");
    let deps = this.ancestors().find(|path| path.ends_with("deps"));
    let target = deps.and_then(|deps| deps.parent()?.parent());
    target
        .expect("cargo puts tests into target/*/deps")
        .join("tmp")
}
