//! `Rounds`: all that a worker has of a training with little communication. Nothing here
//! communicates or looks at a clock.
//!
//! An exchange comes through three stages. *Begun*: this worker's contribution is kept, as the
//! exchange is made anew where a worker is lost. *Summed*: this worker has the sum, but others may
//! not. *Sealed*: all have it, which is known once a small operation behind the sum is complete. Of
//! workers that go on together, some may have sealed one exchange more than others, never two.

use std::collections::VecDeque;
use std::ops::Range;

use meshwork_collectives::Rank;

use super::{LowCommunication, NotFinite, fragments};
use crate::LowCommunicationError;

/// What a worker adds to an exchange.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Contribution {
    /// The difference times the weight; zeros where it is not finite.
    pub(super) values: Vec<f32>,
    /// Inner steps that it stands for, in parts of those of the schedule.
    pub(super) weight: f32,
    pub(super) is_finite: bool,
}

impl Contribution {
    /// How far a worker has come from what all agreed on.
    pub(super) fn new(agreed: &[f32], own: &[f32], weight: f32) -> Self {
        let pairs = agreed.iter().zip(own);
        let mut values: Vec<f32> = pairs.map(|(agreed, own)| weight * (agreed - own)).collect();
        let is_finite = values.iter().all(|one| one.is_finite());
        if !is_finite {
            values.fill(0.0);
        }
        Self {
            values,
            weight: if is_finite { weight } else { 0.0 },
            is_finite,
        }
    }

    /// That of a worker that has nothing to add to so many values.
    pub(super) fn none(length: usize) -> Self {
        Self {
            values: vec![0.0; length],
            weight: 0.0,
            is_finite: true,
        }
    }
}

/// What a sum consists of: the same on all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seal {
    /// The weights of all contributions.
    pub(super) weight: f32,
    /// The first worker whose difference is not finite.
    pub(super) not_finite: Option<Rank>,
    /// Whether a process was waiting to be let in.
    pub(super) has_newcomers: bool,
    /// Whether the sum was slow on all workers, so that links are to be measured again.
    pub(super) is_slow: bool,
}

/// The sum of an exchange, and what compressing it has left out on this worker.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sum {
    pub(super) values: Vec<f32>,
    pub(super) left_out: Vec<f32>,
}

/// A fragment between the beginning of its exchange and the step that applies it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exchange {
    pub(super) fragment: usize,
    /// Steps of the schedule.
    pub(super) began_after: u64,
    pub(super) applied_after: u64,
    /// Kept until it is sealed.
    pub(super) contribution: Option<Contribution>,
    /// Once summed.
    pub(super) sum: Option<Sum>,
    /// Once sealed.
    pub(super) seal: Option<Seal>,
    /// This worker's difference is not finite: it takes over what the others have.
    pub(super) is_excluded: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rounds {
    pub(super) settings: LowCommunication,
    /// The elements of each fragment.
    pub(super) ranges: Vec<Range<usize>>,
    /// How far the schedule has come.
    pub(super) step: u64,
    /// This worker's inner steps since each fragment's exchange last began.
    pub(super) made: Vec<u64>,
    /// The parameters after the last outer step, the same on all workers.
    pub(super) agreed: Vec<f32>,
    pub(super) velocity: Vec<f32>,
    /// What compressing has left out so far, of each fragment.
    pub(super) residuals: Vec<Vec<f32>>,
    /// In the order in which they began, which is that in which they are sealed and applied.
    pub(super) exchanges: VecDeque<Exchange>,
    /// Exchanges that were sealed since the beginning.
    pub(super) sealed: u64,
    pub(super) last_seal: Seal,
}

impl Rounds {
    pub(super) fn new(
        settings: LowCommunication,
        lengths: &[usize],
        parameters: &[f32],
    ) -> Result<Self, LowCommunicationError> {
        settings.check()?;
        let ranges = fragments::ranges(lengths, settings.fragments)?;
        let expected = fragments::elements(lengths)?;
        check_count(expected, parameters)?;
        Ok(Self {
            settings,
            step: 0,
            made: vec![0; ranges.len()],
            agreed: parameters.to_vec(),
            velocity: vec![0.0; expected],
            residuals: ranges.iter().map(|range| vec![0.0; range.len()]).collect(),
            ranges,
            exchanges: VecDeque::new(),
            sealed: 0,
            last_seal: Seal::default(),
        })
    }

    /// Counts an inner step of this worker.
    pub(super) fn made_inner_step(&mut self) {
        for made in &mut self.made {
            *made += 1;
        }
    }

    /// Goes to the next step of the schedule, begins the exchanges that are due there, and says how
    /// many.
    pub(super) fn advance(&mut self, parameters: &[f32]) -> usize {
        self.step += 1;
        let due: Vec<usize> = self.settings.due(self.step).collect();
        for fragment in &due {
            let contribution = self.contribution(*fragment, parameters);
            self.begin(*fragment, self.step, contribution);
        }
        due.len()
    }

    /// Takes part, with nothing to add, in the exchanges that have begun by this step and are not
    /// sealed: no package has them. Each fragment is in one at a time.
    pub(super) fn join_begun(&mut self) {
        let (settings, step) = (self.settings, self.step);
        let begun = (self.sealed..).map(|number| settings.exchange(number));
        let begun = begun.take(self.ranges.len());
        let begun: Vec<_> = begun.take_while(|due| due.step <= step).collect();
        for due in begun {
            let length = self.ranges[due.fragment].len();
            self.begin(due.fragment, due.step, Contribution::none(length));
        }
    }

    fn begin(&mut self, fragment: usize, began_after: u64, contribution: Contribution) {
        self.exchanges.push_back(Exchange {
            fragment,
            began_after,
            applied_after: began_after.saturating_add(u64::from(self.settings.delay)),
            is_excluded: !contribution.is_finite,
            contribution: Some(contribution),
            sum: None,
            seal: None,
        });
    }

    /// Whether the difference of one of the last exchanges, of those that have begun, is not finite
    /// and the training goes on: this worker's parameters then are those that all agree on. In all
    /// fragments, as a step would carry what is no number from one to the others.
    pub(super) fn begin_anew_if_excluded(&mut self, count: usize, own: &mut [f32]) -> bool {
        let first = self.exchanges.len().saturating_sub(count);
        let mut begun = self.exchanges.range(first..);
        let begins_anew = self.settings.not_finite == NotFinite::Exclude
            && begun.any(|exchange| exchange.is_excluded);
        if begins_anew {
            own.copy_from_slice(&self.agreed);
            self.made.fill(0);
        }
        begins_anew
    }

    fn contribution(&mut self, fragment: usize, parameters: &[f32]) -> Contribution {
        let range = self.ranges[fragment].clone();
        let made = std::mem::take(&mut self.made[fragment]);
        let expected = self.settings.steps_between(self.step);
        let weight = made as f32 / expected as f32;
        Contribution::new(&self.agreed[range.clone()], &parameters[range], weight)
    }

    /// The first exchange that is not sealed.
    pub(super) fn unsealed(&mut self) -> Option<&mut Exchange> {
        let mut exchanges = self.exchanges.iter_mut();
        exchanges.find(|one| one.seal.is_none())
    }

    /// All workers have the sum of the first exchange that is not sealed. `false` where this one
    /// has not, and nothing was done.
    pub(super) fn seal(&mut self, seal: Seal) -> bool {
        let Some(exchange) = self.unsealed() else {
            return false;
        };
        let Some(sum) = &mut exchange.sum else {
            return false;
        };
        let (fragment, left_out) = (exchange.fragment, std::mem::take(&mut sum.left_out));
        exchange.contribution = None;
        exchange.seal = Some(seal);
        if self.settings.compression.is_some() {
            self.residuals[fragment] = left_out;
        }
        self.sealed += 1;
        self.last_seal = seal;
        true
    }

    /// The sums that this worker alone may have are nothing: their exchanges are made anew.
    pub(super) fn forget_sums(&mut self) {
        for exchange in self.exchanges.iter_mut().filter(|one| one.seal.is_none()) {
            exchange.sum = None;
        }
    }

    /// Nobody is let in, and nothing is measured, because of what was sealed so far.
    pub(super) fn forget_requests(&mut self) {
        let seals = self
            .exchanges
            .iter_mut()
            .filter_map(|one| one.seal.as_mut());
        for seal in seals.chain([&mut self.last_seal]) {
            (seal.has_newcomers, seal.is_slow) = (false, false);
        }
    }

    /// Whether an exchange is to be applied at this step.
    pub(super) fn is_due(&self) -> bool {
        let first = self.exchanges.front();
        first.is_some_and(|exchange| exchange.applied_after <= self.step)
    }

    /// Makes the outer step of the first exchange, which is sealed, and takes it over into this
    /// worker's parameters. `None` where it is not sealed.
    pub(super) fn apply(
        &mut self,
        parameters: &mut [f32],
    ) -> Result<Option<Seal>, LowCommunicationError> {
        let sealed = |exchange: &mut Exchange| exchange.seal.is_some();
        let Some(exchange) = self.exchanges.pop_front_if(sealed) else {
            return Ok(None);
        };
        let (Some(Sum { values: sum, .. }), Some(seal)) = (exchange.sum, exchange.seal) else {
            return Ok(None);
        };
        if let Some(rank) = seal.not_finite
            && (self.settings.not_finite == NotFinite::Stop || seal.weight == 0.0)
        {
            return Err(LowCommunicationError::NotFinite { rank });
        }
        // Where nobody has made a step there is nothing to learn from.
        if seal.weight > 0.0 {
            let range = self.ranges[exchange.fragment].clone();
            let state = OuterState {
                agreed: &mut self.agreed[range.clone()],
                velocity: &mut self.velocity[range],
            };
            state.step(&self.settings, &sum, seal.weight)?;
        }
        let share = match exchange.is_excluded {
            true => 0.0,
            false => self.settings.local_share,
        };
        let range = self.ranges[exchange.fragment].clone();
        take_over(&self.agreed[range.clone()], share, &mut parameters[range]);
        Ok(Some(seal))
    }
}

/// What the outer optimizer has of a fragment.
pub(super) struct OuterState<'a> {
    pub(super) agreed: &'a mut [f32],
    pub(super) velocity: &'a mut [f32],
}

impl OuterState<'_> {
    /// A step by Nesterov momentum along a sum of contributions of this weight. None is made along
    /// a sum that is not finite, as that of finite contributions may be: nobody could go on from
    /// what it leads to, and all have the same.
    pub(super) fn step(
        self,
        settings: &LowCommunication,
        sum: &[f32],
        weight: f32,
    ) -> Result<(), LowCommunicationError> {
        if sum.iter().any(|sum| !(sum / weight).is_finite()) {
            return Err(LowCommunicationError::SumNotFinite);
        }
        let LowCommunication { rate, momentum, .. } = *settings;
        let state = self.agreed.iter_mut().zip(self.velocity);
        for ((agreed, velocity), sum) in state.zip(sum) {
            let gradient = sum / weight;
            *velocity = momentum * *velocity + gradient;
            *agreed -= rate * (gradient + momentum * *velocity);
        }
        Ok(())
    }
}

/// Takes what all agree on over into a worker's own values, of which it keeps this share.
pub(super) fn take_over(agreed: &[f32], share: f32, own: &mut [f32]) {
    for (own, agreed) in own.iter_mut().zip(agreed) {
        // A value of an excluded worker may be no number, and 0 times it neither.
        *own = match share == 0.0 {
            true => *agreed,
            false => share * *own + (1.0 - share) * agreed,
        };
    }
}

pub(super) fn check_count(
    expected: usize,
    parameters: &[f32],
) -> Result<(), LowCommunicationError> {
    let found = parameters.len();
    (found == expected)
        .then_some(())
        .ok_or(LowCommunicationError::ParameterCount { found, expected })
}

#[cfg(test)]
mod tests;
