//! One job that goes on: of its processes one is killed or stopped, the others go on without it,
//! and another process takes its place, again and again.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use crate::args::Args;
use crate::crew::{Between, Crew, HANG, RankEvent, free_addresses};
use crate::fault::{Load, Moments};
use crate::pause::Pause;
use crate::story::{Story, since};

/// A job whose ranks go on after a loss.
pub(crate) struct Lasting {
    crew: Crew,
    load: Load,
    /// Whether all ranks are at work.
    whole: bool,
    faults: u32,
}

/// The next thing that a rank has to say.
enum Expected<'a> {
    /// It failed, because of the loss of the process at this address.
    Failure { of: &'a str, at: SystemTime },
    /// It has a value in an epoch of so many ranks.
    Work { ranks: usize },
}

/// Faults that one job outlives, before another with other buffers begins.
const FAULTS: u32 = 4;

impl Lasting {
    pub(crate) fn start(args: &Args, load: Load) -> io::Result<Self> {
        let members = free_addresses(args.ranks())?;
        Ok(Self {
            crew: Crew::start(args, members, Between::Loopback, load, &["--goes-on"])?,
            load,
            whole: false,
            faults: 0,
        })
    }

    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Whether it can suffer more.
    pub(crate) fn goes_on(&self) -> bool {
        self.whole && self.faults < FAULTS
    }

    /// Kills one, and starts another in its place once the others have gone on.
    pub(crate) fn restart(&mut self, victim: u32, moments: &mut Moments) -> io::Result<Story> {
        let (victim, ranks) = (victim as usize, self.crew.members().len());
        let mut story = self.begin(moments)?;
        if story.problem().is_some() {
            return Ok(self.end(story));
        }
        let at = SystemTime::now();
        self.crew.kill(victim)?;
        let others: Vec<usize> = (0..ranks).filter(|rank| *rank != victim).collect();
        let of = self.crew.members()[victim].clone();
        let failure = Expected::Failure { of: &of, at };
        self.hear(&others, &failure, &mut story)?;
        let alone = Expected::Work { ranks: ranks - 1 };
        let returns = self.hear(&others, &alone, &mut story)?;
        story.returns = returns.iter().map(|micros| since(at, micros)).collect();
        self.replace(victim, &mut story)?;
        Ok(self.end(story))
    }

    /// Stops one, and lets it continue while the others go on, with it or without it.
    pub(crate) fn pause(
        &mut self,
        victim: u32,
        length: Duration,
        moments: &mut Moments,
    ) -> io::Result<Story> {
        let (victim, members) = (victim as usize, self.crew.members().to_vec());
        let mut story = self.begin(moments)?;
        if story.problem().is_some() {
            return Ok(self.end(story));
        }
        let mut pause = Pause::of(victim, &members, SystemTime::now());
        self.crew.stop(victim)?;
        let until = Instant::now() + length;
        while let Some((rank, rank_event)) = self.crew.rank_event(until)? {
            pause.hear(rank, &rank_event, &mut story);
        }
        self.crew.proceed(victim)?;
        pause.continues(SystemTime::now());
        let deadline = Instant::now() + HANG;
        while !pause.is_settled() && story.problem().is_none() {
            match self.crew.rank_event(deadline)? {
                Some((rank, rank_event)) => pause.hear(rank, &rank_event, &mut story),
                None => pause.give_up(&mut story),
            }
        }
        pause.judge(length, &mut story);
        if pause.has_ended_its_victim() && story.problem().is_none() {
            self.replace(victim, &mut story)?;
        }
        Ok(self.end(story))
    }

    /// Waits until all are at work, and a moment more; there is a problem if they are not.
    fn begin(&mut self, moments: &mut Moments) -> io::Result<Story> {
        let mut story = Story::default();
        if !self.whole {
            let ranks = self.crew.members().len();
            let everybody: Vec<usize> = (0..ranks).collect();
            self.hear(&everybody, &Expected::Work { ranks }, &mut story)?;
        }
        moments.pass(self.load);
        Ok(story)
    }

    fn end(&mut self, story: Story) -> Story {
        self.faults += 1;
        self.whole = story.problem().is_none();
        story
    }

    /// Starts a process in the place of one that has ended, or is about to.
    fn replace(&mut self, victim: usize, story: &mut Story) -> io::Result<()> {
        let ranks = self.crew.members().len();
        let everybody: Vec<usize> = (0..ranks).collect();
        let at = SystemTime::now();
        self.crew.replace(victim, &["--goes-on", "--rejoin"])?;
        let reunions = self.hear(&everybody, &Expected::Work { ranks }, story)?;
        story.reunions = reunions.iter().map(|micros| since(at, micros)).collect();
        Ok(())
    }

    /// Waits until each of these ranks has said what is expected of it, and returns when they did.
    /// After one problem, no more is heard.
    fn hear(
        &mut self,
        who: &[usize],
        expected: &Expected<'_>,
        story: &mut Story,
    ) -> io::Result<Vec<String>> {
        let deadline = Instant::now() + HANG;
        let (mut left, mut moments) = (who.to_vec(), Vec::new());
        while !left.is_empty() && story.problem().is_none() {
            let Some((rank, rank_event)) = self.crew.rank_event(deadline)? else {
                let silent = |rank: &usize| format!("rank {rank} does not go on");
                story.hangs.extend(left.iter().map(silent));
                break;
            };
            // A process that was killed has nothing to say any more.
            if !who.contains(&rank) {
                continue;
            }
            let line = match rank_event {
                RankEvent::Line(line) => line,
                RankEvent::Ended(status) => format!("ended by {status}"),
            };
            let (what, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match (what, expected) {
                ("joined", _) | ("works", Expected::Failure { .. }) => continue,
                ("works", _) if !left.contains(&rank) => continue,
                ("works", Expected::Work { ranks }) => {
                    let (micros, world) = rest.split_once(' ').unwrap_or((rest, ""));
                    // An epoch on the way there counts for nothing.
                    if world != ranks.to_string() {
                        continue;
                    }
                    moments.push(micros.to_owned());
                }
                ("failed", Expected::Failure { of, at }) => {
                    let names = |error: &str| error.contains(&format!(" ({of}) was lost"));
                    story.failed(*at, rest, names);
                }
                ("wrong", _) => story.wrong_values.push(format!("rank {rank}: {line}")),
                _ => {
                    let problem = format!("rank {rank} did not expect: {line}");
                    story.wrong_names.push(problem);
                }
            }
            left.retain(|other| *other != rank);
        }
        Ok(moments)
    }
}
