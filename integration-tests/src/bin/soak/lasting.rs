//! One job that goes on: of its processes one is killed, the others go on without it, and another
//! process takes its place, again and again.

use std::io;
use std::time::{Instant, SystemTime};

use crate::args::Args;
use crate::crew::{Between, Crew, HANG, free_addresses};
use crate::fault::Moments;
use crate::job::{Story, since};

/// A job whose ranks go on after a loss.
pub(crate) struct Lasting {
    crew: Crew,
    /// Whether all ranks are at work.
    whole: bool,
}

/// The next thing that a rank has to say.
enum Expected<'a> {
    /// It failed, because of the loss of the process at this address.
    Failure { of: &'a str, at: SystemTime },
    /// It has a value in an epoch of so many ranks.
    Work { ranks: usize },
}

impl Lasting {
    pub(crate) fn start(args: &Args) -> io::Result<Self> {
        let place = (free_addresses(args.ranks())?, Between::Loopback);
        let crew = Crew::start(args, place, &["--goes-on"])?;
        Ok(Self { crew, whole: false })
    }

    /// Kills one, and starts another in its place once the others have gone on.
    pub(crate) fn suffer(&mut self, victim: u32, moments: &mut Moments) -> io::Result<Story> {
        let (victim, ranks) = (victim as usize, self.crew.members().len());
        let mut story = Story::default();
        let everybody: Vec<usize> = (0..ranks).collect();
        if !self.whole {
            self.hear(&everybody, &Expected::Work { ranks }, &mut story);
        }
        moments.pass();
        let at = SystemTime::now();
        self.crew.kill(victim)?;
        let others: Vec<usize> = (0..ranks).filter(|rank| *rank != victim).collect();
        let of = self.crew.members()[victim].clone();
        self.hear(&others, &Expected::Failure { of: &of, at }, &mut story);
        let alone = Expected::Work { ranks: ranks - 1 };
        let returns = self.hear(&others, &alone, &mut story);
        story.returns = returns.iter().map(|micros| since(at, micros)).collect();
        let at = SystemTime::now();
        self.crew.replace(victim, &["--goes-on", "--rejoin"])?;
        let reunions = self.hear(&everybody, &Expected::Work { ranks }, &mut story);
        story.reunions = reunions.iter().map(|micros| since(at, micros)).collect();
        self.whole = story.problem().is_none();
        Ok(story)
    }

    /// Whether it can suffer more.
    pub(crate) fn goes_on(&self) -> bool {
        self.whole
    }

    /// Waits until each of these ranks has said what is expected of it, and returns when they did.
    /// After one problem, no more is heard.
    fn hear(&self, who: &[usize], expected: &Expected<'_>, story: &mut Story) -> Vec<String> {
        let deadline = Instant::now() + HANG;
        let (mut left, mut moments) = (who.to_vec(), Vec::new());
        while !left.is_empty() && story.problem().is_none() {
            let Some((rank, line)) = self.crew.line(deadline) else {
                story.hangs += left.len();
                break;
            };
            let (what, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match (what, expected) {
                ("joined", _) => continue,
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
                ("wrong", _) => story.wrong_values += 1,
                _ => {
                    let problem = format!("rank {rank} did not expect: {line}");
                    story.wrong_names.push(problem);
                }
            }
            left.retain(|other| *other != rank);
        }
        moments
    }
}
