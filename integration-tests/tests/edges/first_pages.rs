//! The first page of each crate's documentation: what readers look for is in the same order on all.

use crate::workspace::Member;

/// Behind what the crate does and does not know. A page may have others in between.
const HEADINGS: [&str; 7] = [
    "When not to use it",
    "Examples",
    "Common calls",
    FEATURES,
    "Errors",
    "Costs",
    "Map of the crate",
];
/// Not for a crate that has none.
const FEATURES: &str = "Crate features";

/// Pages of published crates that lack a heading or its text, or have them in another order, and
/// features that are not on them. `document` gives the text of a file.
pub(crate) fn problems(
    members: &[Member],
    document: &impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let published = members.iter().filter(|member| member.is_published());
    let pages = published.filter_map(|member| {
        let path = format!("{}/src/lib.rs", member.folder);
        let source = document(&path)?;
        let faults = faults(member, &sections(&source)).into_iter();
        Some(faults.map(move |fault| format!("{path}: {fault}")))
    });
    pages.flatten().collect()
}

fn faults(member: &Member, sections: &[Section<'_>]) -> Vec<String> {
    let has_features = member.features().next().is_some();
    let wanted = HEADINGS.into_iter();
    let wanted: Vec<&str> = wanted
        .filter(|it| has_features || *it != FEATURES)
        .collect();
    let known = sections.iter().filter(|it| HEADINGS.contains(&it.heading));
    let found: Vec<&str> = known.clone().map(|section| section.heading).collect();
    let order = (found != wanted).then(|| format!("has {found:?}, not {wanted:?}"));
    let empty = known.filter(|it| it.text.is_empty());
    let empty = empty.map(|it| format!("nothing is under {:?}", it.heading));
    let told = sections.iter().find(|it| it.heading == FEATURES);
    let told = told.map_or_else(String::new, |section| section.text.concat());
    let untold = member
        .features()
        .filter(|it| !told.contains(&format!("`{it}`")));
    let untold = untold.map(|name| format!("say what the feature `{name}` adds"));
    order.into_iter().chain(empty).chain(untold).collect()
}

/// A heading of the highest level, and the lines under it that are not empty.
struct Section<'a> {
    heading: &'a str,
    text: Vec<&'a str>,
}

fn sections(source: &str) -> Vec<Section<'_>> {
    let page = source.lines().map_while(|line| line.strip_prefix("//!"));
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut is_code = false;
    for line in page.map(str::trim).filter(|line| !line.is_empty()) {
        is_code ^= line.starts_with("```");
        match line.strip_prefix("# ") {
            Some(heading) if !is_code => sections.push(Section {
                heading,
                text: Vec::new(),
            }),
            Some(_) | None => {
                if let Some(section) = sections.last_mut() {
                    section.text.push(line);
                }
            }
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "//! Does it.
//!
//! # When not to use it
//! Never.
//! # Examples
//! ```
//! # hidden();
//! ```
//! # Of its own
//! # Common calls
//! Two.
//! # Errors
//! None.
//! # Costs
//! Some.
//! # Map of the crate
//! `a`.
mod a;
";

    fn check(manifest: &str, page: &str) -> Vec<String> {
        let member = Member {
            folder: "x".to_owned(),
            package: "x".to_owned(),
            edges: Vec::new(),
            manifest: manifest.parse().unwrap(),
        };
        problems(&[member], &|path| {
            (path == "x/src/lib.rs").then(|| page.to_owned())
        })
    }

    #[test]
    fn headings_are_there_in_their_order_with_text_and_features() {
        let own = "package.publish.workspace = true\n";
        let none = [""; 0];
        assert_eq!(check(own, PAGE), none);
        assert_eq!(check("package.publish = false", "mod a;"), none);
        let swapped = PAGE
            .replace("# Costs", "# Errors")
            .replacen("# Errors", "# Costs", 1);
        assert_eq!(check(own, &swapped).len(), 1);
        assert_eq!(
            check(own, &PAGE.replace("//! None.\n", "")),
            ["x/src/lib.rs: nothing is under \"Errors\""]
        );
        let featured = format!("{own}features = {{ default = [], fast = [] }}");
        assert_eq!(check(&featured, PAGE).len(), 2);
        let told = PAGE.replace(
            "# Errors",
            "# Crate features\n//! `fast`: it.\n//! # Errors",
        );
        assert_eq!(check(&featured, &told), none);
    }
}
