//! A strict reader of OpenMetrics text, of the part that has counters and gauges: whatever the
//! standard does not allow is an error with its line.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample, in order.
pub(crate) type Labels = BTreeMap<String, String>;

/// A metric with all that is told of it.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) samples: Vec<(Labels, f64)>,
}

/// The metrics of a text, by name.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    let mut families = BTreeMap::new();
    let mut current: Option<(String, Family)> = None;
    let mut told = BTreeSet::new();
    for line in body.split_terminator('\n') {
        let failing = |what: &str| format!("{what}: {line}");
        if let Some(rest) = line.strip_prefix("# ") {
            let (what, rest) = rest.split_once(' ').ok_or_else(|| failing("no name"))?;
            let (name, value) = rest.split_once(' ').ok_or_else(|| failing("no value"))?;
            if current.as_ref().is_none_or(|(open, _)| open != name) {
                close(&mut families, current.take())?;
                told.clear();
                current = Some((checked_name(name)?, Family::default()));
            }
            let (_, family) = current.as_mut().expect("it was just opened");
            if !told.insert(what.to_owned()) || !family.samples.is_empty() {
                return Err(failing("told twice, or after a sample"));
            }
            match what {
                "TYPE" if ["counter", "gauge"].contains(&value) => family.kind = value.to_owned(),
                "HELP" => family.help = value.to_owned(),
                "UNIT" if name.ends_with(&format!("_{value}")) => {}
                _ => return Err(failing("no such metadata")),
            }
            continue;
        }
        let (name, family) = current.as_mut().ok_or_else(|| failing("no metadata"))?;
        let suffix = if family.kind == "counter" {
            "_total"
        } else {
            ""
        };
        let rest = line.strip_prefix(&format!("{name}{suffix}"));
        let rest = rest.ok_or_else(|| failing("not of this metric"))?;
        let (labels, value) = labels(rest).ok_or_else(|| failing("labels"))?;
        let value = value.strip_prefix(' ').ok_or_else(|| failing("no value"))?;
        let value: f64 = value.parse().map_err(|_| failing("no number"))?;
        if family.samples.iter().any(|(known, _)| *known == labels) {
            return Err(failing("twice"));
        }
        if family.kind == "counter" && !(value.is_finite() && value >= 0.0) {
            return Err(failing("a counter of this value"));
        }
        family.samples.push((labels, value));
    }
    close(&mut families, current)?;
    Ok(families)
}

fn close(
    families: &mut BTreeMap<String, Family>,
    family: Option<(String, Family)>,
) -> Result<(), String> {
    let Some((name, family)) = family else {
        return Ok(());
    };
    if family.kind.is_empty() || family.help.is_empty() {
        return Err(format!("{name} has no type or help"));
    }
    match families.insert(name.clone(), family) {
        None => Ok(()),
        Some(_) => Err(format!("{name} comes in two pieces")),
    }
}

fn checked_name(name: &str) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let first = name.chars().next();
    let begins = first.is_some_and(|letter| !letter.is_ascii_digit());
    match begins && name.chars().all(fits) {
        true => Ok(name.to_owned()),
        false => Err(format!("no name of a metric: {name}")),
    }
}

/// The labels at the beginning, and the rest.
fn labels(text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return Some((labels, text));
    };
    loop {
        let (name, value) = rest.split_once("=\"")?;
        checked_name(name).ok()?;
        let mut text = String::new();
        let mut letters = value.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => text.push(match letters.next()?.1 {
                    'n' => '\n',
                    escaped @ ('"' | '\\') => escaped,
                    _ => return None,
                }),
                (_, letter) => text.push(letter),
            }
        };
        if labels.insert(name.to_owned(), text).is_some() {
            return None;
        }
        rest = &value[end + 1..];
        match rest.split_at_checked(1)? {
            ("}", after) => return Some((labels, after)),
            (",", after) => rest = after,
            _ => return None,
        }
    }
}

#[test]
fn the_reader_refuses_what_is_not_allowed() {
    let good = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                a_seconds_total{x=\"1\\\"\\n\"} 2.5\na_seconds_total{x=\"2\"} 0\n# EOF\n";
    assert_eq!(parse(good).unwrap()["a_seconds"].samples.len(), 2);
    for (part, instead) in [
        ("# EOF\n", ""),
        ("a_seconds_total{x=\"2\"} 0", "a_seconds{x=\"2\"} 0"),
        ("{x=\"2\"} 0", "{x=\"1\\\"\\n\"} 0"),
        ("{x=\"2\"} 0", "{x=\"2\"} -1"),
        ("{x=\"2\"} 0", "{x=\"2\"}0"),
        ("{x=\"2\"} 0", "{x=\"2} 0"),
        ("{x=\"2\"} 0", "{x=\"2\",x=\"3\"} 0"),
        ("UNIT a_seconds seconds", "UNIT a_seconds bytes"),
        ("TYPE a_seconds counter", "TYPE a_seconds number"),
        ("# HELP a_seconds Time.\n", ""),
        ("# EOF\n", "# HELP a_seconds Time.\n# EOF\n"),
        ("a_seconds_total{x=\"2\"} 0", "b_total 0"),
    ] {
        let bad = good.replace(part, instead);
        assert!(bad != good && parse(&bad).is_err(), "{bad}");
    }
}
