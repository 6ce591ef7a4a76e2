use meshwork_collectives::Rank;

/// What is wrong with a training with little communication.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LowCommunicationError {
    /// There are more fragments than tensors to make them of.
    #[error(
        "{tensors} tensors cannot be exchanged in {fragments} fragments, which are whole tensors: use at most {tensors}"
    )]
    TooManyFragments {
        /// The fragments that were asked for.
        fragments: usize,
        /// The tensors of the model.
        tensors: usize,
    },
    /// The lengths of all tensors add up to more than memory can hold.
    #[error("{tensors} tensors have more elements than memory can hold: check their lengths")]
    TooManyElements {
        /// The tensors of the model.
        tensors: usize,
    },
    /// A fragment would still be on its way when it is exchanged again.
    #[error(
        "an exchange cannot be applied after {delay} steps in rounds of {inner_steps}: use a delay below {inner_steps}"
    )]
    Delay {
        /// The delay that was asked for.
        delay: u32,
        /// The inner steps of a round.
        inner_steps: u32,
    },
    /// A setting is outside its range.
    #[error("the {name} is {value}, but goes from 0 to {largest}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// Its value.
        value: f32,
        /// The largest that it may have.
        largest: f32,
    },
    /// The parameters are more or fewer than those of the tensors.
    #[error("there are {found} parameters, but the tensors have {expected}")]
    ParameterCount {
        /// The parameters that were given.
        found: usize,
        /// The elements of all tensors.
        expected: usize,
    },
    /// The outer optimizer was to be saved with the state of another step.
    #[error(
        "the snapshot is of step {snapshot}, but {made} steps were made: give it the state after the last step"
    )]
    SnapshotStep {
        /// The step of the snapshot.
        snapshot: u64,
        /// The steps that the outer optimizer has seen.
        made: u64,
    },
    /// A worker's parameters differ from the others' by a NaN or an infinity. All workers get this
    /// error.
    #[error(
        "the difference of {rank} is not finite after its inner steps: lower its learning rate, or exclude such workers"
    )]
    NotFinite {
        /// The lowest such worker.
        rank: Rank,
    },
}
