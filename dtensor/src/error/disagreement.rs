//! What clients can disagree on, and how they are quoted.

use std::fmt::{self, Display};

/// The subject of an agreement among clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Subject {
    /// The list of jobs, their name, and the type of devices.
    Job,
    /// A mesh: its dimensions, its name and its devices.
    Mesh,
    /// The name of a barrier.
    Barrier,
    /// Whether a checkpoint was written.
    Checkpoint,
    /// The next operation of the program.
    Program,
}

impl Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Job => "the job",
            Self::Mesh => "the mesh",
            Self::Barrier => "the barrier",
            Self::Checkpoint => "the checkpoint",
            Self::Program => "the program",
        })
    }
}

/// The statement of one client where all should be equal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientStatement {
    pub(crate) client: u32,
    pub(crate) said: String,
    pub(crate) caller: String,
}

impl ClientStatement {
    /// The number of the client, from 0.
    #[must_use]
    pub fn client(&self) -> u32 {
        self.client
    }

    /// Its content.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The line of its program that says so, as `file:line:column`.
    #[must_use]
    pub fn caller(&self) -> &str {
        &self.caller
    }
}

/// Every different view once, with those who have it.
pub(super) fn listed(views: &[ClientStatement]) -> String {
    let mut kinds: Vec<(&ClientStatement, Vec<String>)> = Vec::new();
    for view in views {
        let same = |(first, _): &&mut (&ClientStatement, Vec<String>)| {
            (&first.said, &first.caller) == (&view.said, &view.caller)
        };
        match kinds.iter_mut().find(same) {
            Some((_, clients)) => clients.push(view.client.to_string()),
            None => kinds.push((view, vec![view.client.to_string()])),
        }
    }
    let quoted = kinds.iter().map(|(view, clients)| {
        let (noun, verb) = match clients.len() {
            1 => ("client", "has"),
            _ => ("clients", "have"),
        };
        let clients = clients.join(", ");
        format!("{noun} {clients} {verb} {:?} at {}", view.said, view.caller)
    });
    quoted.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_view_are_named_together() {
        let view = |client, said: &str, line| ClientStatement {
            client,
            said: said.to_owned(),
            caller: format!("train.rs:{line}:1"),
        };
        let views = [
            view(0, "2x2", 7),
            view(1, "4", 7),
            view(2, "2x2", 7),
            view(3, "4", 9),
        ];
        assert_eq!(
            listed(&views),
            "clients 0, 2 have \"2x2\" at train.rs:7:1; client 1 has \"4\" at train.rs:7:1; \
             client 3 has \"4\" at train.rs:9:1"
        );
    }
}
