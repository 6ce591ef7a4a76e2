//! The book as its readers have it: built by mdBook, and looked at in Chromium.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use meshwork_testing::{Browser, installed};
use serde_json::Value;
use tempfile::TempDir;

/// From the folder of this package.
const BOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book");
/// Pixels of a screen and of a phone.
const WIDTHS: [u32; 2] = [1300, 390];
/// Pages that mdBook adds, of what is on the others.
const REPEATED: [&str; 2] = ["print.html", "toc.html"];
/// Something that the search has to find.
const SOUGHT: &str = "all-reduce";

/// What a page is made of. A wide block of code or table is scrolled by itself.
const LOOK: &str = r"
    const every = (found, text) => Array.from(document.querySelectorAll(found), text);
    const loaded = performance.getEntriesByType('resource').map((entry) => entry.name);
    return {
        ids: every('[id]', (element) => element.id),
        links: every('main a[href]', (link) => link.href),
        broken: every('img', (image) => image.naturalWidth > 0 ? '' : image.src),
        foreign: loaded.filter((name) => !/^(file|data):/.test(name)),
        excess: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    };
";
/// How much the search has found, by the names of mdBook 0.5 and 0.4.
const FOUND: &str =
    "return document.querySelectorAll('#mdbook-searchresults a, #searchresults a').length";

/// The book, built.
pub(crate) struct Pages {
    folder: TempDir,
}

impl Pages {
    /// What is missing, where it cannot be built.
    pub(crate) fn build() -> Result<Self, String> {
        let mdbook = installed("mdbook")?;
        let folder = tempfile::tempdir().expect("a folder for the pages");
        let mut build = Command::new(mdbook);
        build.args(["build", BOOK, "--dest-dir"]);
        let built = build.arg(folder.path()).output().expect("mdbook starts");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
        Ok(Self { folder })
    }

    /// Complaints of the browser, what is not whole or loaded from elsewhere, and links to nothing.
    pub(crate) fn problems(&self, browser: &Browser) -> Vec<String> {
        let files = files(self.folder.path()).expect("the pages can be listed");
        let mut problems = Vec::new();
        let mut there: BTreeSet<String> = files.iter().map(|file| address(file)).collect();
        let mut links = BTreeMap::new();
        for page in files.iter().filter(|file| is_page(file)) {
            let address = address(page);
            for width in WIDTHS {
                browser.resize(width);
                browser.open(&address);
                let seen = browser.run(LOOK);
                problems.extend(faults(&seen, browser).map(|fault| format!("{address}: {fault}")));
                there.extend(strings(&seen["ids"]).map(|id| format!("{address}#{id}")));
                links.extend(strings(&seen["links"]).map(|link| (link, address.clone())));
            }
        }
        let inside = links.iter().filter(|(link, _)| link.starts_with("file:"));
        let dead = inside.filter(|(link, _)| !there.contains(*link));
        problems.extend(dead.map(|(link, page)| format!("{page}: nothing is at {link}")));
        problems
    }

    /// Looks for something until it is found.
    pub(crate) fn search(&self, browser: &Browser) {
        let page = address(&self.folder.path().join("index.html"));
        browser.open(&format!("{page}?search={SOUGHT}"));
        browser.until(FOUND, |found| found.as_u64() > Some(1));
    }
}

fn faults(seen: &Value, browser: &Browser) -> impl Iterator<Item = String> {
    let broken = strings(&seen["broken"]).filter(|source| !source.is_empty());
    let foreign = strings(&seen["foreign"]);
    let excess = (seen["excess"] != 0).then(|| format!("{} pixels too wide", seen["excess"]));
    browser
        .complaints()
        .into_iter()
        .chain(broken.map(|source| format!("no picture {source}")))
        .chain(foreign.map(|name| format!("loads {name}")))
        .chain(excess)
}

fn strings(list: &Value) -> impl Iterator<Item = String> {
    let list = list.as_array().expect("a list of the script").iter();
    list.map(|text| text.as_str().expect("of strings").to_owned())
}

fn is_page(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(".html") && !REPEATED.contains(&name))
}

fn address(file: &Path) -> String {
    format!("file://{}", file.display())
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(self::files(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}
