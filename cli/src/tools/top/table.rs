//! A job as text.

use meshwork_status::{Job, RankStatus, State};

/// The columns, by name and width; the last takes what is left.
pub(super) const COLUMNS: [(&str, u16); 7] = [
    ("RANK", 5),
    ("STATE", 10),
    ("WAIT", 6),
    ("OPS", 10),
    ("GB/s", 8),
    ("MEM", 9),
    ("IN", 0),
];

/// One line about all of it.
pub(super) fn headline(job: &Job) -> String {
    let mut line = match (job.world(), job.members()) {
        (shown, members) if shown < members => format!("the first {shown} of {members} ranks"),
        (world, _) => format!("{world} ranks"),
    };
    let mut add = |text: String| line += &format!("  {text}");
    if let Some(steps) = job.number("training_steps") {
        add(format!("step {steps:.0}"));
    }
    if let Some(samples) = job.number("training_samples_per_second") {
        add(format!("{samples:.1} samples/s"));
    }
    if let Some(age) = job.number("checkpoint_age_seconds") {
        add(format!("checkpoint {age:.0} s ago"));
    }
    if let Some(culprit) = job.culprit() {
        add(culprit.to_string());
    } else if let Some(slowest) = job.slowest() {
        let (rank, seconds) = (slowest.rank, slowest.seconds);
        add(match slowest.now {
            true => format!("rank {rank} is waited for since {seconds:.1} s"),
            false => format!("rank {rank} is slowest, by {seconds:.1} s so far"),
        });
    }
    line
}

/// What is told below the ranks.
pub(super) fn remarks(job: &Job) -> Vec<String> {
    let changes = job.changes().into_iter().map(|change| {
        let address = change.address.as_deref();
        match (&change.reason, address) {
            (Some(reason), _) => format!("left: {reason}"),
            (None, Some(address)) => format!("came: {address}, in view {}", change.view),
            (None, None) => format!("came: in view {}", change.view),
        }
    });
    let silent = job.unanswered().iter().map(|one| one.why.clone());
    changes.chain(silent).collect()
}

/// The cells of every rank.
pub(super) fn rows(job: &Job) -> Vec<[String; 7]> {
    let ranks = (0_u32..).zip(job.states());
    let row = |(number, state): (u32, State)| match job.rank(number) {
        Some(rank) => cells(rank, state),
        None => {
            let mut cells = [const { String::new() }; 7];
            (cells[0], cells[1]) = (number.to_string(), state.name().to_owned());
            cells
        }
    };
    ranks.map(row).collect()
}

fn cells(rank: &RankStatus, state: State) -> [String; 7] {
    let or_nothing = |text: Option<String>| text.unwrap_or_default();
    let call = rank.current.as_ref().map(|call| {
        let awaited = call.awaited.map(|awaited| format!(" for rank {awaited}"));
        format!(
            "{:.1} s{} {} at {}",
            call.seconds,
            or_nothing(awaited),
            call.what,
            call.site
        )
    });
    [
        rank.rank.to_string(),
        state.name().to_owned(),
        format!("{:.0} %", 100.0 * rank.waiting_share),
        rank.operations.to_string(),
        or_nothing(rank.gigabytes_per_second.map(|speed| format!("{speed:.2}"))),
        or_nothing(
            rank.number("resident_memory_bytes")
                .map(|bytes| format!("{:.0} MiB", bytes / 1048576.0)),
        ),
        or_nothing(rank.failure.clone().or(call)),
    ]
}

pub(super) fn text(job: &Job) -> String {
    let mut text = headline(job) + "\n";
    let names = COLUMNS.map(|(name, _)| name.to_owned());
    for row in std::iter::once(names).chain(rows(job)) {
        let cells = row.iter().zip(COLUMNS);
        let line: String = cells
            .map(|(cell, (_, width))| format!("{cell:<width$} ", width = usize::from(width)))
            .collect();
        text += line.trim_end();
        text += "\n";
    }
    for remark in remarks(job) {
        text += &remark;
        text += "\n";
    }
    text
}
