//! The image and the manifests that start it: what they name exists, and all agree. None is built
//! or applied here.

use crate::workspace::Workspace;

const IMAGE: &str = "Dockerfile";
const MANIFEST: &str = "docs/book/src/files/job.yaml";
/// Those for other controllers, whose processes meet at the address that all know.
const OTHERS: [&str; 3] = [
    "docs/book/src/files/jobset.yaml",
    "docs/book/src/files/trainjob.yaml",
    "docs/book/src/files/trainjob-plain.yaml",
];

/// Seconds that pods come after each other at most, where no node is missing for good.
const PATIENCE: u64 = 300;

/// What cannot be as the two files say.
pub(crate) fn problems(workspace: &Workspace) -> Vec<String> {
    let read = |name: &str| workspace.document(name).unwrap_or_default();
    let minimum = workspace.document("Cargo.toml").unwrap_or_default();
    let minimum = minimum.parse::<toml::Table>().unwrap_or_default();
    let minimum = minimum
        .get("workspace")
        .and_then(|workspace| workspace.get("package")?.get("rust-version")?.as_str())
        .unwrap_or_default();
    let programs = |package: &str| programs(workspace, package);
    let mut problems = image_problems(&read(IMAGE), minimum, programs, |path| workspace.has(path));
    problems.extend(manifest_problems(&read(MANIFEST), &read(IMAGE)));
    for other in OTHERS {
        problems.extend(other_problems(other, &read(other), &read(MANIFEST)));
    }
    for name in OTHERS.into_iter().chain([MANIFEST]) {
        problems.extend(pod_problems(name, &read(name)));
    }
    problems
}

/// Pods wait for each other while nodes are made and images pulled, and no probe ends them
/// meanwhile; where they save nothing on SIGTERM, they end by it all the same.
fn pod_problems(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let waits = number(text, "- name: MESHWORK_JOIN_TIMEOUT", "value:");
    let probe = |field| number(text, "startupProbe:", field);
    let most = match probe("failureThreshold:").zip(probe("periodSeconds:")) {
        Some((failures, seconds)) => failures.saturating_mul(seconds),
        None if text.contains("startupProbe:") => 0,
        None => u64::MAX,
    };
    if !waits.is_some_and(|waits| (PATIENCE..most).contains(&waits)) {
        problems.push(format!(
            "{name}: let pods wait for each other by MESHWORK_JOIN_TIMEOUT, for {PATIENCE} s or \
             longer, and for less than a startup probe waits for them"
        ));
    }
    if !text.contains("--checkpoint") && !text.contains("shareProcessNamespace: true") {
        problems.push(format!(
            "{name}: let SIGTERM end the program by shareProcessNamespace: true, as process 1 is \
             not ended by it"
        ));
    }
    problems
}

/// The number of the first such field below a line, in quotes or not.
fn number(text: &str, line: &str, field: &str) -> Option<u64> {
    let (_, below) = text.split_once(line)?;
    let mut fields = below.lines().map(str::trim);
    let value = fields.find_map(|found| found.strip_prefix(field))?;
    value.trim().trim_matches('"').parse().ok()
}

/// Another manifest has the image, the user and the secret of the first, and torchrun's variables.
fn other_problems(name: &str, text: &str, first: &str) -> Vec<String> {
    let fields = [
        "image: ",
        "runAsUser: ",
        "fsGroup: ",
        "secretName: ",
        "defaultMode: ",
    ];
    let lines = first.lines().map(str::trim);
    let same = lines.filter(|line| fields.iter().any(|field| line.starts_with(field)));
    let variables = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
    let wanted: Vec<_> = same.chain(variables).collect();
    let mut problems: Vec<_> = wanted
        .iter()
        .filter(|wanted| !text.contains(**wanted))
        .map(|wanted| format!("{name}: let it have `{wanted}`, as {MANIFEST} or torchrun has"))
        .collect();
    if wanted.len() != fields.len() + variables.len() {
        problems.push(format!(
            "{MANIFEST}: name image, user, group and secret, once each"
        ));
    }
    problems
}

/// The programs of a package: those that it lists, else the one of its own name.
fn programs(workspace: &Workspace, package: &str) -> Vec<String> {
    let mut members = workspace.members.iter();
    let Some(member) = members.find(|member| member.package == package) else {
        return Vec::new();
    };
    let listed = member.manifest.get("bin").and_then(toml::Value::as_array);
    match listed {
        Some(listed) => {
            let names = listed.iter().filter_map(|bin| bin.get("name")?.as_str());
            names.map(str::to_owned).collect()
        }
        None => vec![package.to_owned()],
    }
}

fn image_problems(
    image: &str,
    minimum: &str,
    programs: impl Fn(&str) -> Vec<String>,
    is_there: impl Fn(&str) -> bool,
) -> Vec<String> {
    let steps = steps(image);
    let mut problems = Vec::new();
    let build = steps.iter().find(|step| step.contains("cargo +"));
    let build = build.map_or("", String::as_str);
    if minimum.is_empty() || !build.contains(&format!("cargo +{minimum} build --locked")) {
        problems.push(format!("{IMAGE}: build with Rust {minimum} and --locked"));
    }
    let words: Vec<_> = build.split_whitespace().collect();
    let packages = words.windows(2).filter(|pair| pair[0] == "-p");
    let built: Vec<_> = packages.flat_map(|pair| programs(pair[1])).collect();
    let copies = steps.iter().filter(|step| step.starts_with("COPY --from="));
    for path in copies.flat_map(|step| step.split_whitespace().filter_map(in_source)) {
        let is_built = path
            .strip_prefix("target/release/")
            .map(|program| built.iter().any(|built| built == program));
        if !is_built.unwrap_or_else(|| is_there(path)) {
            problems.push(format!("{IMAGE}: nothing makes {path}"));
        }
    }
    if built.is_empty() {
        problems.push(format!("{IMAGE}: build programs of packages"));
    }
    let user = value(&steps, "USER ").and_then(|user| user.split(':').next());
    if !user.is_some_and(|user| user.parse::<u32>().is_ok_and(|user| user > 0)) {
        problems.push(format!("{IMAGE}: run as a user with a number other than 0"));
    }
    let started = ["HEALTHCHECK ", "CMD "].map(|step| value(&steps, step));
    for command in started {
        let program = command.and_then(first_quoted);
        if !program.is_some_and(|program| built.iter().any(|built| built == program)) {
            problems.push(format!("{IMAGE}: start and check by what is in it"));
        }
    }
    problems
}

/// The manifest runs what the image has, as its user, at its port, and checks it likewise.
fn manifest_problems(manifest: &str, image: &str) -> Vec<String> {
    let steps = steps(image);
    let mut wanted = Vec::new();
    let tag = image.split("docker build -t ").nth(1);
    wanted.extend(
        tag.and_then(|tag| tag.split_whitespace().next())
            .map(|tag| format!("image: {tag}\n")),
    );
    let user = value(&steps, "USER ").and_then(|user| user.split_once(':'));
    wanted.extend(user.map(|(user, _)| format!("runAsUser: {user}\n")));
    wanted.extend(user.map(|(_, group)| format!("fsGroup: {group}\n")));
    let port = value(&steps, "EXPOSE ").and_then(|port| port.strip_suffix("/udp"));
    wanted.extend(port.map(|port| format!("containerPort: {port}\n")));
    let check = value(&steps, "HEALTHCHECK ").and_then(|check| check.split_once("CMD "));
    wanted.extend(check.map(|(_, command)| format!("command: {command}\n")));
    let start = value(&steps, "CMD ").map(|command| command.replace(['[', ']', '"', ','], ""));
    wanted.extend(start.map(|start| format!("exec {start} ")));
    let mut problems: Vec<_> = wanted
        .iter()
        .filter(|wanted| !manifest.contains(wanted.as_str()))
        .map(|wanted| {
            format!(
                "{MANIFEST}: let it have `{}`, as {IMAGE} has",
                wanted.trim_end()
            )
        })
        .collect();
    if wanted.len() != 6 {
        problems.push(format!(
            "{IMAGE}: name image, user, group, port, check and start"
        ));
    }
    problems
}

/// Instructions, each on a line of its own, without comments.
fn steps(image: &str) -> Vec<String> {
    let lines = image.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    joined.lines().map(str::to_owned).collect()
}

/// What follows the last instruction of this name.
fn value<'a>(steps: &'a [String], name: &str) -> Option<&'a str> {
    let mut steps = steps.iter().rev();
    steps.find_map(|step| step.strip_prefix(name))
}

fn first_quoted(command: &str) -> Option<&str> {
    command.split('"').nth(1)
}

/// A path of the build stage, from the root of the repository.
fn in_source(word: &str) -> Option<&str> {
    word.strip_prefix("/src/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = "\
# docker build -t a/b .
FROM x AS build
RUN cargo +1.2 build --locked \\
    -p cli
FROM x
COPY --from=build /src/target/release/c /src/data /usr/local/bin/
USER 7:8
EXPOSE 9/udp
HEALTHCHECK --timeout=1s CMD [\"c\", \"check\"]
CMD [\"c\", \"go\"]
";
    const MANIFEST: &str = "image: a/b\nrunAsUser: 7\nfsGroup: 8\ncontainerPort: 9\n\
                            command: [\"c\", \"check\"]\nexec c go --more\n";

    #[track_caller]
    fn check(from: &str, to: &str, expected: usize) {
        let image = IMAGE.replace(from, to);
        let programs = |package: &str| match package {
            "cli" => vec!["c".to_owned()],
            _ => Vec::new(),
        };
        let mut found = image_problems(&image, "1.2", programs, |path| path == "data");
        found.extend(manifest_problems(MANIFEST, &image));
        assert_eq!(found.len(), expected, "{found:?}");
    }

    #[test]
    fn another_manifest_has_what_the_first_has_and_where_to_meet() {
        let first = "image: a\n runAsUser: 7\nfsGroup: 8\nsecretName: s\ndefaultMode: 0440\n";
        let same = format!("{first} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT");
        let found = |text: &str| other_problems("b", text, first).len();
        assert_eq!(found(&same), 0);
        for gone in ["image: a", "runAsUser: 7", "secretName: s", "MASTER_PORT"] {
            assert_eq!(found(&same.replace(gone, "")), 1, "{gone}");
        }
        assert_eq!(other_problems("b", &same, "").len(), 1);
    }

    #[test]
    fn pods_wait_for_each_other_for_less_than_a_probe_and_end_by_sigterm() {
        let waits = "- name: MESHWORK_JOIN_TIMEOUT\n  value: \"540\"\nmnist --checkpoint\n";
        let probe = "startupProbe:\n  periodSeconds: 10\n  failureThreshold: 60\n";
        let all = format!("{waits}{probe}");
        let found = |text: &str| pod_problems("a", text).len();
        assert_eq!((found(waits), found(&all)), (0, 0));
        for (from, to) in [
            ("MESHWORK_JOIN_TIMEOUT", "MESHWORK_OPERATION_TIMEOUT"),
            ("540", "299"),
            ("540", "600"),
            ("540", "long"),
            ("60", "54"),
            ("failureThreshold", "successThreshold"),
            ("--checkpoint", "--data"),
        ] {
            assert_eq!(found(&all.replace(from, to)), 1, "{from}");
        }
        let shared = all.replace("--checkpoint", "shareProcessNamespace: true");
        assert_eq!(found(&shared), 0);
    }

    #[test]
    fn what_an_image_names_exists_and_its_manifest_agrees() {
        check("", "", 0);
        check("+1.2", "+1.1", 1);
        check("--locked", "", 1);
        check("release/c", "release/d", 1);
        check("/src/data", "/src/dates", 1);
        check("USER 7:8", "USER 7:9", 1);
        check("USER 7:8", "USER 0:8", 2);
        check("a/b", "a/c", 1);
        check("9/udp", "10/udp", 1);
        check("\"check\"", "\"look\"", 1);
        check("\"go\"", "\"come\"", 1);
        check("CMD [\"c\", \"go\"]", "CMD [\"d\", \"go\"]", 2);
        check("-p cli", "-p other", 4);
        check("EXPOSE 9/udp", "", 1);
    }
}
