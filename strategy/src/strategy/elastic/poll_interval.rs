use std::time::Duration;

/// How many steps there are from one look for newcomers to the next: about as many as are made in a
/// quarter of a second, so that neither the looks nor the wait of a newcomer are long.
///
/// Workers count steps, as they have no common clock; how many is agreed in each look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PollInterval {
    between: u64,
    left: u64,
}

impl PollInterval {
    /// A look after the first step.
    pub(crate) fn new() -> Self {
        Self::of(1)
    }

    /// A poll after this many steps, and then again.
    pub(crate) fn of(between: u64) -> Self {
        let between = between.clamp(1, MOST);
        Self {
            between,
            left: between,
        }
    }

    /// A step was made; true if it is time to look.
    pub(crate) fn step(&mut self) -> bool {
        self.left -= 1;
        let due = self.left == 0;
        if due {
            self.left = self.between;
        }
        due
    }

    /// The interval that this worker proposes after the steps since the last poll took this long.
    pub(crate) fn proposed(&self, took: Duration) -> u64 {
        let step = (took.as_nanos() / u128::from(self.between)).max(1);
        u64::try_from(TARGET.as_nanos() / step).map_or(MOST, |steps| steps.clamp(1, MOST))
    }
}

/// The time from one look to the next.
const TARGET: Duration = Duration::from_millis(250);
/// The number of steps after which a sudden slowdown is noticed.
const MOST: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_after_as_many_steps_as_were_agreed() {
        for between in [1, 2, 7] {
            let mut poll_interval = PollInterval::of(between);
            let due: Vec<u64> = (1..=3 * between).filter(|_| poll_interval.step()).collect();
            assert_eq!(due, [between, 2 * between, 3 * between]);
        }
        assert!(PollInterval::new().step());
    }

    #[test]
    fn proposals_fill_a_quarter_of_a_second_and_stay_within_bounds() {
        let poll_interval = PollInterval::of(10);
        let proposed = |millis| poll_interval.proposed(Duration::from_millis(millis));
        assert_eq!(proposed(10), 250);
        assert_eq!(proposed(100), 25);
        assert_eq!(proposed(60_000), 1);
        assert_eq!(proposed(0), MOST);
        assert_eq!(poll_interval.proposed(Duration::MAX), 1);
        assert_eq!(PollInterval::of(0), PollInterval::of(1));
        assert_eq!(PollInterval::of(u64::MAX), PollInterval::of(MOST));
    }
}
