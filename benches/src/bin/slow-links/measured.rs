//! What a trial comes to, and which of several is the best.

use std::fmt::{self, Display};
use std::time::Duration;

use crate::Failure;

/// What comes of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The mean over the validation text, of what all workers agree on; no finite number where the
    /// training has diverged.
    pub(crate) loss: f64,
    pub(crate) bytes_per_worker: u64,
    pub(crate) wall: Duration,
}

impl Measured {
    pub(crate) fn csv(&self) -> String {
        let Self { loss, .. } = self;
        let (bytes, wall) = (self.bytes_per_worker, self.wall.as_secs_f64());
        format!("{loss:.4},{bytes},{wall:.1}")
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let fields: Vec<&str> = text.split(',').collect();
        let [loss, bytes, wall] = fields[..] else {
            return Err(format!("no result: {text}").into());
        };
        Ok(Self {
            loss: loss.parse()?,
            bytes_per_worker: bytes.parse()?,
            wall: Duration::from_secs_f64(wall.parse()?),
        })
    }
}

impl Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (loss, wall) = (self.loss, self.wall.as_secs_f64());
        let megabytes = self.bytes_per_worker as f64 / 1e6;
        if loss.is_finite() {
            write!(f, "loss {loss:.4}")?;
        } else {
            write!(f, "diverged, loss {loss}")?;
        }
        write!(f, ", {megabytes:.1} MB sent a worker, {wall:.1} s")
    }
}

/// The one with the lowest loss. One that diverged is the best only where all have; `None` of none.
pub(crate) fn best(all: &[Measured]) -> Option<&Measured> {
    let rank = |one: &&Measured| match one.loss.is_finite() {
        true => one.loss,
        false => f64::INFINITY,
    };
    all.iter()
        .min_by(|one, other| rank(one).total_cmp(&rank(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(loss: f64) -> Measured {
        Measured {
            loss,
            bytes_per_worker: 1,
            wall: Duration::ZERO,
        }
    }

    #[test]
    fn a_run_that_diverged_is_not_the_best_wherever_it_comes() {
        let best_of = |losses: &[f64]| {
            let all: Vec<Measured> = losses.iter().copied().map(measured).collect();
            best(&all).map(|one| one.loss)
        };
        assert_eq!(best_of(&[f64::NAN, 1.5, 1.25]), Some(1.25));
        assert_eq!(best_of(&[1.5, -f64::NAN, f64::NEG_INFINITY]), Some(1.5));
        assert_eq!(best_of(&[f64::INFINITY, 2.0]), Some(2.0));
        assert!(best_of(&[f64::NAN, f64::NAN]).unwrap().is_nan());
        assert_eq!(best_of(&[]), None);
    }

    #[test]
    fn a_run_that_diverged_says_so_and_is_read_back() {
        let diverged = Measured::parse(&measured(f64::NAN).csv()).unwrap();
        assert!(diverged.loss.is_nan());
        assert!(diverged.to_string().starts_with("diverged, loss NaN, "));
        assert!(measured(1.5).to_string().starts_with("loss 1.5000, "));
    }
}
