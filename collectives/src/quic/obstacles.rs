//! What may have kept members apart, as far as one process can see by itself.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::endpoint::from_here_to;
use crate::config::GroupConfig;
use crate::notice::say;
use crate::{JoinError, Member, OperationError};

/// Says what a process that has not met all others can find out about it afterwards.
pub(super) async fn explain(error: &OperationError, config: &GroupConfig, listens: SocketAddr) {
    for line in lines(error, config, listens).await {
        say(line);
    }
}

async fn lines(error: &OperationError, config: &GroupConfig, listens: SocketAddr) -> Vec<String> {
    let missing: &[Member] = match error {
        OperationError::Join(JoinError::NotJoined { missing, .. }) => missing.as_slice(),
        // Where two machines have each other's index, each calls itself.
        OperationError::Join(JoinError::OtherRank { .. }) => &[],
        _ => return Vec::new(),
    };
    let own = own_address(config, listens).into_iter();
    own.chain(without_a_way(missing).await).collect()
}

/// Behind address translation it is as it should be; otherwise most often the process has another
/// machine's index.
fn own_address(config: &GroupConfig, listens: SocketAddr) -> Option<String> {
    let own = config.own_address().filter(|_| config.bind().is_none())?;
    let means_all = |address: SocketAddr| address.ip().is_unspecified();
    if !means_all(listens) || own.parse().is_ok_and(means_all) {
        return None;
    }
    Some(format!(
        "{} is to be reached at {own}, which is no address of this machine: is its index that of \
         another machine?",
        config.rank()
    ))
}

/// Those whose names have no address, or to which this machine knows no way.
async fn without_a_way(missing: &[Member]) -> Vec<String> {
    let mut lines = Vec::new();
    let until = Instant::now() + LOOKUP;
    for member in missing.iter().take(MOST_TRIED) {
        if let Ok(Err(error)) = timeout_at(until, from_here_to(member.address())).await {
            lines.push(format!(
                "{member} has no address that this machine can send to: {error}; correct the list, \
                 or this machine's network or name service"
            ));
        }
    }
    lines
}

/// As many as the error lists.
const MOST_TRIED: usize = 8;
/// All of them together, so that the error is not kept back for long.
const LOOKUP: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobSecret, Rank};

    const ALL: &str = "0.0.0.0:4000";

    fn config(own: &str) -> GroupConfig {
        let members = [own.to_owned(), "127.0.0.1:4001".to_owned()];
        let secret = JobSecret::generate().unwrap();
        GroupConfig::new(&members, Rank::CHIEF, secret).unwrap()
    }

    #[test]
    fn an_address_that_this_machine_does_not_have_is_doubted() {
        let said = |own: &str, listens: &str| own_address(&config(own), listens.parse().unwrap());
        let line = said("192.0.2.77:4000", ALL).unwrap();
        assert!(
            line.contains("rank 0") && line.contains("192.0.2.77:4000"),
            "{line}"
        );
        assert_eq!(said("127.0.0.1:4000", "127.0.0.1:4000"), None);
        assert_eq!(said(ALL, ALL), None);
        let bound = config("192.0.2.77:4000").with_bind(ALL.parse().unwrap());
        assert_eq!(own_address(&bound, ALL.parse().unwrap()), None);
    }

    #[test]
    fn who_finds_another_rank_is_asked_for_its_index_where_its_address_is_not_its_own() {
        let peer = Member::new(Rank::CHIEF, "127.0.0.1:4001");
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let said = |error: JoinError| {
            let (config, error) = (config("192.0.2.77:4000"), OperationError::from(error));
            runtime.block_on(lines(&error, &config, ALL.parse().unwrap()))
        };
        let told = said(JoinError::OtherRank { peer: peer.clone() });
        assert!(
            matches!(told.as_slice(), [line] if line.contains("is its index")),
            "{told:?}"
        );
        assert_eq!(said(JoinError::OtherJob { peer }), [""; 0]);
    }

    #[test]
    fn a_name_without_an_address_is_told_from_a_member_that_is_late() {
        let member = |rank, address: &str| Member::new(Rank::new(rank), address);
        // A label of more than 63 letters is refused without asking any service.
        let missing = [
            member(0, "127.0.0.1:4000"),
            member(1, &format!("{}:4001", "a".repeat(64))),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let lines = runtime.block_on(without_a_way(&missing));
        let [line] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert!(line.starts_with("rank 1 (aaa"), "{line}");
        assert!(line.contains("correct the list"), "{line}");
    }
}
