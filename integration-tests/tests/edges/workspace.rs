//! The workspace as cargo sees it, and its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

use crate::source::Source;

/// Any failure to read; the tests only show it.
type Failure = Box<dyn std::error::Error>;

/// The root folder and the members.
pub(crate) struct Workspace {
    root: PathBuf,
    pub(crate) members: Vec<Member>,
}

/// One package.
pub(crate) struct Member {
    /// Relative to the root, with `/`.
    pub(crate) folder: String,
    pub(crate) package: String,
    /// Its dependencies on packages of this repository.
    pub(crate) edges: Vec<Edge>,
    pub(crate) manifest: toml::Table,
}

/// One dependency on a package of this repository.
pub(crate) struct Edge {
    pub(crate) kind: Kind,
    pub(crate) package: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

impl Workspace {
    /// Asks the cargo that builds this test: it knows globs, renames and per-platform tables.
    pub(crate) fn read() -> Result<Self, Failure> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let root = PathBuf::from(text(&metadata["workspace_root"]));
        let members = list(&metadata["packages"])
            .iter()
            .map(|package| member(&root, package))
            .collect::<Result<_, _>>()?;
        Ok(Self { root, members })
    }

    /// The text of a file in the root folder, if there is one.
    pub(crate) fn document(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root.join(name)).ok()
    }

    /// Every Rust file of every member.
    pub(crate) fn sources(&self) -> Result<Vec<Source>, Failure> {
        let mut paths = Vec::new();
        for member in &self.members {
            files(&self.root.join(&member.folder), "rs", &mut paths)?;
        }
        paths.sort();
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path)?;
            Source::new(relative(&self.root, path)?, text)
        };
        paths.iter().map(read).collect()
    }

    /// Every Markdown file, by its path from the root.
    pub(crate) fn documents(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut paths = Vec::new();
        files(&self.root, "md", &mut paths)?;
        let read = |path: &PathBuf| Ok((relative(&self.root, path)?, fs::read_to_string(path)?));
        paths.iter().map(read).collect()
    }

    /// Whether there is a file or a folder at this path from the root.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

impl Member {
    /// Whether users are to have it.
    pub(crate) fn is_published(&self) -> bool {
        let package = self.manifest.get("package");
        let publish = package.and_then(|package| package.get("publish"));
        publish.is_some_and(toml::Value::is_table)
    }

    /// The names of its features.
    pub(crate) fn features(&self) -> impl Iterator<Item = &str> {
        let features = self.manifest.get("features");
        let features = features.and_then(toml::Value::as_table).into_iter();
        let names = features.flat_map(toml::Table::keys).map(String::as_str);
        names.filter(|name| *name != "default")
    }
}

fn member(root: &Path, package: &Value) -> Result<Member, Failure> {
    let path = Path::new(text(&package["manifest_path"]));
    let folder = path.parent().unwrap_or(root);
    let of_this_repository = |dependency: &&Value| dependency["path"].is_string();
    Ok(Member {
        folder: relative(root, folder)?,
        package: text(&package["name"]).to_owned(),
        edges: list(&package["dependencies"])
            .iter()
            .filter(of_this_repository)
            .map(edge)
            .collect(),
        manifest: fs::read_to_string(path)?.parse()?,
    })
}

fn edge(dependency: &Value) -> Edge {
    Edge {
        kind: match dependency["kind"].as_str() {
            Some("build") => Kind::Build,
            Some("dev") => Kind::Dev,
            _ => Kind::Normal,
        },
        package: text(&dependency["name"]).to_owned(),
    }
}

/// What has this extension in a folder and those below it; not what is built or hidden.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, extension, found)?;
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    Ok(())
}

fn relative(root: &Path, path: &Path) -> Result<String, Failure> {
    let names = path.strip_prefix(root)?.iter();
    Ok(names
        .map(|name| name.to_string_lossy())
        .collect::<Vec<_>>()
        .join("/"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cargo_reports_this_package_among_the_members() {
        let workspace = Workspace::read().unwrap();
        let own = workspace
            .members
            .iter()
            .find(|member| member.package == env!("CARGO_PKG_NAME"));
        assert_eq!(own.unwrap().folder, "integration-tests");
        let sources = workspace.sources().unwrap();
        assert!(
            sources.iter().any(|source| source.path() == file!()),
            "{}",
            file!()
        );
    }

    #[test]
    fn dependencies_of_every_kind_are_told_apart() {
        let kind = |kind| edge(&json!({"name": "a", "kind": kind})).kind;
        assert_eq!(kind(json!(null)), Kind::Normal);
        assert_eq!(kind(json!("build")), Kind::Build);
        assert_eq!(kind(json!("dev")), Kind::Dev);
    }
}
