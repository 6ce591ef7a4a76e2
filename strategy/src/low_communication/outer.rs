//! `OuterOptimizer`: what all workers agree on, and the exchanges under way.

use std::ops::Range;
use std::time::{Duration, Instant};

use meshwork_collectives::{ErrorFeedback, Group, Pending, Rank, ReduceOp};

use super::{LowCommunication, NotFinite, fragments};
use crate::{Error, Fingerprint, LowCommunicationError, MultiWorkerMirroredStrategy};

/// The outer optimizer of a training with little communication, and the parameters that all workers
/// agree on.
#[derive(Debug)]
pub struct OuterOptimizer {
    pub(super) settings: LowCommunication,
    pub(super) step: u64,
    /// The elements of each fragment.
    pub(super) ranges: Vec<Range<usize>>,
    /// The parameters after the last outer step, the same on all workers.
    pub(super) agreed: Vec<f32>,
    pub(super) velocity: Vec<f32>,
    /// What compressing has left out so far, of each fragment that is not under way.
    pub(super) residuals: Vec<Vec<f32>>,
    pub(super) exchanges: Vec<Exchange>,
    waited: Duration,
    rounds: u64,
    bytes: u64,
}

/// A fragment on its way.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) fragment: usize,
    pub(super) applied_after: u64,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// A one for each worker whose difference is not finite, and the sum of the others'.
    Exact(Pending<Vec<f32>>, Pending<Vec<f32>>),
    /// The same, with what compressing leaves out.
    Compressed(Pending<Vec<f32>>, Pending<ErrorFeedback>),
    Arrived(Arrived),
}

/// The sum of all workers' differences, and whose are not in it.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) excluded: Vec<f32>,
    pub(super) sum: Vec<f32>,
}

impl OuterOptimizer {
    /// Begins with `parameters`, tensors of these lengths one after the other: the same bits on all
    /// workers.
    ///
    /// # Errors
    /// [`LowCommunicationError`] where these settings and tensors cannot be trained so;
    /// [`Error::ReplicasDiverged`] on all workers where settings, lengths or parameters differ;
    /// [`Error::Group`].
    #[track_caller]
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        settings: LowCommunication,
        lengths: &[usize],
        parameters: &[f32],
    ) -> Result<Self, Error> {
        let outer = Self::beginning(settings, lengths, parameters)?;
        outer.verify(strategy, lengths)?;
        Ok(outer)
    }

    pub(super) fn beginning(
        settings: LowCommunication,
        lengths: &[usize],
        parameters: &[f32],
    ) -> Result<Self, LowCommunicationError> {
        settings.check()?;
        let ranges = fragments::ranges(lengths, settings.fragments)?;
        check_count(ranges.last().map_or(0, |last| last.end), parameters)?;
        Ok(Self {
            settings,
            step: 0,
            agreed: parameters.to_vec(),
            velocity: vec![0.0; parameters.len()],
            residuals: ranges.iter().map(|range| vec![0.0; range.len()]).collect(),
            ranges,
            exchanges: Vec::new(),
            waited: Duration::ZERO,
            rounds: 0,
            bytes: 0,
        })
    }

    /// Checks that all workers have the same settings, tensors and outer state.
    pub(super) fn verify(
        &self,
        strategy: &mut MultiWorkerMirroredStrategy,
        lengths: &[usize],
    ) -> Result<(), Error> {
        let mut copy = Fingerprint::new();
        // Settings that differ have another text.
        let text = format!("{:?} {lengths:?} {}", self.settings, self.step);
        copy.add(&text.bytes().map(f32::from).collect::<Vec<_>>());
        copy.add(&self.agreed);
        copy.add(&self.velocity);
        strategy.verify_fingerprint(copy).map(|_| ())
    }

    /// Counts an inner step after which nothing is to be exchanged or applied; where something is,
    /// does nothing and says so: then it is [`step`](Self::step) that counts it. For parameters
    /// that have to be brought together first.
    #[must_use]
    pub fn step_alone(&mut self) -> bool {
        let step = self.step + 1;
        let begins = self.settings.due(step).next().is_some();
        let ends = self.exchanges.iter().any(|one| one.applied_after <= step);
        let is_alone = !begins && !ends;
        self.step += u64::from(is_alone);
        is_alone
    }

    /// Is called after each inner step: begins the exchanges that are due, and applies those whose
    /// delay is over.
    ///
    /// # Errors
    /// [`LowCommunicationError::NotFinite`] on all workers,
    /// [`LowCommunicationError::ParameterCount`], [`Error::Group`].
    pub fn step(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        parameters: &mut [f32],
    ) -> Result<(), Error> {
        check_count(self.agreed.len(), parameters)?;
        self.step += 1;
        for fragment in self.settings.due(self.step) {
            let exchange = self.begin(strategy.group_mut(), fragment, parameters)?;
            self.exchanges.push(exchange);
        }
        let step = self.step;
        let is_due = |exchange: &mut Exchange| exchange.applied_after <= step;
        let due: Vec<Exchange> = self.exchanges.extract_if(.., is_due).collect();
        for exchange in due {
            self.apply(strategy.rank(), exchange, parameters)?;
        }
        Ok(())
    }

    /// The parameters after the last outer step of each fragment: the same bits on all workers.
    #[must_use]
    pub fn agreed(&self) -> &[f32] {
        &self.agreed
    }

    /// Inner steps that this worker has made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Outer steps of a fragment, of all fragments together.
    #[must_use]
    pub fn outer_steps(&self) -> u64 {
        self.rounds
    }

    /// How long this worker has waited for exchanges: inner steps did not go on meanwhile.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Bytes of all differences that were exchanged, as they were compressed. A worker sends about
    /// twice as many, less its own part.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn begin(
        &mut self,
        group: &mut Group,
        fragment: usize,
        parameters: &[f32],
    ) -> Result<Exchange, Error> {
        let range = self.ranges[fragment].clone();
        let own = parameters[range.clone()].iter();
        let mut differences: Vec<f32> = self.agreed[range]
            .iter()
            .zip(own)
            .map(|(agreed, own)| agreed - own)
            .collect();
        let mut excluded = vec![0.0; group.world() as usize];
        if differences.iter().any(|one| !one.is_finite()) {
            excluded[group.rank().index()] = 1.0;
            differences.fill(0.0);
        }
        let length = differences.len();
        let excluded = group.start_all_reduce(excluded, ReduceOp::Sum)?;
        let state = match self.settings.compression {
            None => {
                self.bytes += (length * size_of::<f32>()) as u64;
                let sum = group.start_all_reduce(differences, ReduceOp::Sum)?;
                State::Exact(excluded, sum)
            }
            Some(compression) => {
                self.bytes += compression.compressed_len(length) as u64;
                let compression = compression.for_call(self.step);
                let residual = std::mem::take(&mut self.residuals[fragment]);
                let sum = group.start_all_reduce_compressed(differences, residual, compression)?;
                State::Compressed(excluded, sum)
            }
        };
        Ok(Exchange {
            fragment,
            applied_after: self.step + u64::from(self.settings.delay),
            state,
        })
    }

    /// Waits for an exchange, and takes what compressing it left out.
    pub(super) fn arrive(&mut self, fragment: usize, state: State) -> Result<Arrived, Error> {
        let began = Instant::now();
        let arrived = match state {
            State::Exact(excluded, sum) => Arrived {
                excluded: excluded.wait()?,
                sum: sum.wait()?,
            },
            State::Compressed(excluded, sum) => {
                let excluded = excluded.wait()?;
                let ErrorFeedback {
                    buffer: sum,
                    residual,
                } = sum.wait()?;
                self.residuals[fragment] = residual;
                Arrived { excluded, sum }
            }
            State::Arrived(arrived) => arrived,
        };
        self.waited += began.elapsed();
        Ok(arrived)
    }

    fn apply(
        &mut self,
        rank: Rank,
        exchange: Exchange,
        parameters: &mut [f32],
    ) -> Result<(), Error> {
        let Arrived { excluded, sum } = self.arrive(exchange.fragment, exchange.state)?;
        let workers = self.workers(&excluded)?;
        self.outer_step(exchange.fragment, &sum, workers);
        let range = self.ranges[exchange.fragment].clone();
        let share = match excluded[rank.index()] == 0.0 {
            true => self.settings.local_share,
            false => 0.0,
        };
        let agreed = &self.agreed[range.clone()];
        for (own, agreed) in parameters[range].iter_mut().zip(agreed) {
            // A value of an excluded worker may be no number, and 0 times it neither.
            *own = match share == 0.0 {
                true => *agreed,
                false => share * *own + (1.0 - share) * agreed,
            };
        }
        Ok(())
    }

    /// How many workers' differences are in a sum.
    fn workers(&self, excluded: &[f32]) -> Result<usize, Error> {
        let finite = excluded.iter().filter(|one| **one == 0.0).count();
        let first = (0_u32..)
            .zip(excluded)
            .find_map(|(rank, one)| (*one != 0.0).then_some(Rank::new(rank)));
        match first {
            Some(rank) if finite == 0 || self.settings.not_finite == NotFinite::Stop => {
                Err(LowCommunicationError::NotFinite { rank }.into())
            }
            Some(_) | None => Ok(finite),
        }
    }

    fn outer_step(&mut self, fragment: usize, sum: &[f32], workers: usize) {
        let LowCommunication { rate, momentum, .. } = self.settings;
        let range = self.ranges[fragment].clone();
        let agreed = self.agreed[range.clone()].iter_mut();
        let state = agreed.zip(&mut self.velocity[range]);
        for ((agreed, velocity), sum) in state.zip(sum) {
            let gradient = sum / workers as f32;
            *velocity = momentum * *velocity + gradient;
            *agreed -= rate * (gradient + momentum * *velocity);
        }
        self.rounds += 1;
    }
}

impl LowCommunication {
    fn check(&self) -> Result<(), LowCommunicationError> {
        if self.delay >= self.inner_steps.get() {
            return Err(LowCommunicationError::Delay {
                delay: self.delay,
                inner_steps: self.inner_steps.get(),
            });
        }
        let settings = [
            ("outer rate", self.rate, f32::MAX),
            ("outer momentum", self.momentum, 1.0),
            ("local share", self.local_share, 1.0),
        ];
        for (name, value, largest) in settings {
            if !(0.0..=largest).contains(&value) {
                return Err(LowCommunicationError::Setting {
                    name,
                    value,
                    largest,
                });
            }
        }
        Ok(())
    }
}

fn check_count(expected: usize, parameters: &[f32]) -> Result<(), LowCommunicationError> {
    let found = parameters.len();
    (found == expected)
        .then_some(())
        .ok_or(LowCommunicationError::ParameterCount { found, expected })
}
