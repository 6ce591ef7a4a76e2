//! Ranks that look at their waits, and probes that travel between them, in virtual time.

use std::collections::BTreeMap;

use super::*;

/// Between two looks at a wait.
pub(super) const LOOK: Duration = Duration::from_millis(5);

pub(super) struct Model {
    began: Instant,
    now: Duration,
    graphs: BTreeMap<Rank, WaitForGraph>,
    /// By when they arrive, and their number.
    travelling: BTreeMap<(Duration, usize), (Rank, Probe)>,
    /// Probes so far.
    pub(super) sent: usize,
    delay: Duration,
}

impl Model {
    /// Every probe travels for so long.
    pub(super) fn new(delay: Duration) -> Self {
        Self {
            began: Instant::now(),
            now: Duration::ZERO,
            graphs: BTreeMap::new(),
            travelling: BTreeMap::new(),
            sent: 0,
            delay,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// From now on probes travel for another time; nobody hears of those that are `None`.
    pub(super) fn set_delay(&mut self, delay: Option<Duration>) {
        // None is waited for until then.
        self.delay = delay.unwrap_or(Duration::MAX / 2);
    }

    /// These waits go on for so long. Returns what is found, up to the first time that it is.
    pub(super) fn run(&mut self, waits: &[WaitEdge], time: Duration) -> Vec<(Duration, Deadlock)> {
        let end = self.now + time;
        while self.now < end {
            let found = self.step(waits);
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// All look once at their waits, and hear before of what has arrived.
    pub(super) fn step(&mut self, waits: &[WaitEdge]) -> Vec<(Duration, Deadlock)> {
        let now = self.began + self.now;
        while let Some(first) = self.travelling.first_entry()
            && first.key().0 <= self.now
        {
            let (to, probe) = first.remove();
            self.graphs.entry(to).or_default().arrives(now, probe);
        }
        let mut found = Vec::new();
        for wait in waits {
            let graph = self.graphs.entry(wait.waiter).or_default();
            if !graph.is_due(now, wait.serial) {
                continue;
            }
            for action in graph.look(now, wait) {
                match action {
                    Action::Send(to, probe) => {
                        let arrival = (self.now + self.delay, self.sent);
                        self.travelling.insert(arrival, (to, probe));
                        self.sent += 1;
                    }
                    Action::GiveUp(deadlock) => found.push((self.now, deadlock)),
                }
            }
        }
        self.now += LOOK;
        found
    }
}
