//! One job of real processes, and what its fault does to it.

use std::io;
use std::time::{Instant, SystemTime};

use crate::args::Args;
use crate::crew::{Between, Crew, HANG, RankEvent, free_addresses};
use crate::fault::{Fault, Load, Moments};
use crate::namespaces::Namespaces;
use crate::story::Story;
use crate::watch::Watch;

/// Starts a job, waits until all its ranks are at work, does the fault, and watches until all have
/// ended.
pub(crate) fn suffer(
    args: &Args,
    load: Load,
    fault: Fault,
    moments: &mut Moments,
) -> io::Result<Story> {
    let (members, between) = scene(args, fault)?;
    let mut crew = Crew::start(args, members, between, load, &[])?;
    let mut story = Story::default();
    match reaches_work(&mut crew)? {
        Begun::AtWork => {}
        Begun::Otherwise(line) => {
            story.wrong_names.push(format!("before the fault: {line}"));
            return Ok(story);
        }
        Begun::Hangs => {
            story.hangs.push("not all ranks begin".to_owned());
            return Ok(story);
        }
    }
    moments.pass(load);
    let at = strike(&mut crew, fault)?;
    let watch = Watch::for_survivors(fault, at, crew.members());
    hear_out(&mut crew, watch, &mut story)?;
    if let Fault::Stop(rank) = fault {
        let rank = rank as usize;
        crew.proceed(rank)?;
        hear_out(&mut crew, Watch::for_end_of(rank), &mut story)?;
    }
    Ok(story)
}

/// Where the ranks are, such that the fault can happen to them.
fn scene(args: &Args, fault: Fault) -> io::Result<(Vec<String>, Between)> {
    if args.is_apart() || matches!(fault, Fault::Partition(_)) {
        let namespaces = Namespaces::new(args.ranks())?;
        return Ok((namespaces.addresses(), Between::Namespaces(namespaces)));
    }
    let members = free_addresses(args.ranks())?;
    let between = match fault {
        Fault::Cut(_) => Between::relay(members[0].clone())?,
        _ => Between::Loopback,
    };
    Ok((members, between))
}

/// How a job begins.
enum Begun {
    /// All ranks say that they have been at work for a few steps.
    AtWork,
    /// One says something else.
    Otherwise(String),
    Hangs,
}

fn reaches_work(crew: &mut Crew) -> io::Result<Begun> {
    let deadline = Instant::now() + HANG;
    let mut at_work = 0;
    while at_work < crew.members().len() {
        match crew.rank_event(deadline)? {
            Some((_, RankEvent::Line(line))) if line.starts_with("reached") => at_work += 1,
            Some((_, RankEvent::Line(line))) if line.starts_with("joined") => {}
            Some((_, RankEvent::Line(line))) => return Ok(Begun::Otherwise(line)),
            Some((rank, RankEvent::Ended(status))) => {
                return Ok(Begun::Otherwise(format!("rank {rank} ended by {status}")));
            }
            None => return Ok(Begun::Hangs),
        }
    }
    Ok(Begun::AtWork)
}

/// Does the fault, and says when: a process is gone when it has been told so, a link is down when
/// the programs that cut it have ended.
fn strike(crew: &mut Crew, fault: Fault) -> io::Result<SystemTime> {
    let at = SystemTime::now();
    match fault {
        Fault::Kill(rank) | Fault::Restart(rank) => crew.kill(rank as usize)?,
        Fault::Stop(rank) | Fault::Pause(rank, _) => crew.stop(rank as usize)?,
        Fault::Cut(rank) | Fault::Partition(rank) => {
            crew.cut(rank as usize)?;
            return Ok(SystemTime::now());
        }
    }
    Ok(at)
}

fn hear_out(crew: &mut Crew, mut watch: Watch, story: &mut Story) -> io::Result<()> {
    let deadline = Instant::now() + HANG;
    while !watch.is_over() {
        match crew.rank_event(deadline)? {
            Some((rank, rank_event)) => watch.hear(rank, &rank_event, story),
            None => break,
        }
    }
    watch.give_up(story);
    Ok(())
}
