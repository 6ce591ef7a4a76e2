//! What is told of a rank.

use meshwork_collectives::{Observer, Statistics};

/// Where the numbers come from: asked for each answer, on the server's thread.
pub trait StatusSource: Send + Sync {
    /// How the rank fares at this moment.
    fn report(&self) -> Report;

    /// Its last operations, as [`Observer::dump`] has them.
    fn dump(&self) -> String;

    /// The addresses of all ranks of its group, in order.
    fn members(&self) -> Vec<String>;
}

/// How a rank fares.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What its group says.
    pub group: Statistics,
    /// What the program adds.
    pub numbers: Vec<Metric>,
}

/// A number that a program adds to those of its group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its name, as in `training_steps`: with its unit, and without `meshwork_` and `_total`.
    pub name: &'static str,
    /// What it is, in a few words without a full stop.
    pub help: &'static str,
    /// How it changes.
    pub kind: MetricKind,
    /// Its value.
    pub value: f64,
}

/// How a number changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A group alone, without a program's numbers.
impl StatusSource for Observer {
    fn report(&self) -> Report {
        Report {
            group: self.statistics(),
            numbers: Vec::new(),
        }
    }

    fn dump(&self) -> String {
        Self::dump(self)
    }

    fn members(&self) -> Vec<String> {
        let members = Self::members(self);
        let addresses = members.iter().map(|member| member.address().to_owned());
        addresses.collect()
    }
}
