//! What may have kept members apart, as far as one process can see by itself.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{Instant, timeout_at};

use super::endpoint::{elsewhere, from_here_to, means_loopback};
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
    let until = Instant::now() + LOOKUP;
    let own = own_address(config, listens, missing, until).await;
    let others = without_a_way(missing, until).await;
    own.into_iter().chain(others).collect()
}

/// Behind address translation it is as it should be; otherwise most often the process has another
/// machine's index, or is listed by what means this machine alone.
async fn own_address(
    config: &GroupConfig,
    listens: SocketAddr,
    missing: &[Member],
    until: Instant,
) -> Option<String> {
    let own = config.own_address().filter(|_| config.bind().is_none())?;
    let rank = config.rank();
    if listens.ip().is_loopback() {
        let others = missing.iter().map(Member::address);
        elsewhere(own, others, until).await?;
        return Some(format!(
            "{rank} listens at {} alone, which no other machine reaches: list an address of this \
             machine's network instead of {own}",
            listens.ip()
        ));
    }
    let means_all = |address: SocketAddr| address.ip().is_unspecified();
    if !means_all(listens) || own.parse().is_ok_and(means_all) {
        return None;
    }
    let found = timeout_at(until, lookup_host(own)).await.ok();
    let found: Vec<SocketAddr> = found.and_then(Result::ok).into_iter().flatten().collect();
    Some(match found.first().filter(|_| means_loopback(&found)) {
        Some(loopback) => format!(
            "{rank} is to be reached at {own}, which means {} on this machine: where it means that \
             on others too, they look for it on themselves; correct /etc/hosts there, or list an \
             address",
            loopback.ip()
        ),
        None => format!(
            "{rank} is to be reached at {own}, which is no address of this machine: is its index \
             that of another machine?"
        ),
    })
}

/// Those whose names have no address, or to which this machine knows no way.
async fn without_a_way(missing: &[Member], until: Instant) -> Vec<String> {
    let mut lines = Vec::new();
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
    use crate::quic::testing::PATIENCE;
    use crate::{JobSecret, Rank};

    const ALL: &str = "0.0.0.0:4000";

    fn config(own: &str) -> GroupConfig {
        let members = [own.to_owned(), "127.0.0.1:4001".to_owned()];
        let secret = JobSecret::generate().unwrap();
        GroupConfig::new(&members, Rank::CHIEF, secret).unwrap()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(future)
    }

    fn soon() -> Instant {
        Instant::now() + PATIENCE
    }

    /// What is said of this own address where this member is missing.
    fn said(config: &GroupConfig, listens: &str, missing: &str) -> Option<String> {
        let missing = [Member::new(Rank::new(1), missing)];
        let listens = listens.parse().unwrap();
        block_on(async { own_address(config, listens, &missing, soon()).await })
    }

    #[test]
    fn an_address_that_this_machine_does_not_have_is_doubted() {
        let said = |own: &str, listens| said(&config(own), listens, "127.0.0.1:4001");
        let line = said("192.0.2.77:4000", ALL).unwrap();
        assert!(
            line.contains("rank 0") && line.contains("192.0.2.77:4000"),
            "{line}"
        );
        assert!(line.contains("is its index"), "{line}");
        assert_eq!(said("127.0.0.1:4000", "127.0.0.1:4000"), None);
        assert_eq!(said(ALL, ALL), None);
        let bound = config("192.0.2.77:4000").with_bind(ALL.parse().unwrap());
        assert_eq!(self::said(&bound, ALL, "127.0.0.1:4001"), None);
    }

    #[test]
    fn who_listens_on_loopback_alone_is_told_of_it_where_others_are_elsewhere() {
        for own in ["localhost:4000", "127.0.0.1:4000"] {
            let said = |missing| said(&config(own), "127.0.0.1:4000", missing);
            let line = said("192.0.2.77:4001").unwrap();
            assert!(
                line.starts_with("rank 0 listens at 127.0.0.1 alone") && line.contains(own),
                "{line}"
            );
            assert_eq!(said("127.0.0.2:4001"), None);
            assert_eq!(said("localhost:4001"), None);
        }
        let bound = config("localhost:4000").with_bind("127.0.0.1:4000".parse().unwrap());
        assert_eq!(said(&bound, "127.0.0.1:4000", "192.0.2.77:4001"), None);
    }

    #[test]
    fn a_name_that_means_loopback_here_is_not_taken_for_that_of_another_machine() {
        let line = said(&config("localhost:4000"), ALL, "192.0.2.77:4001").unwrap();
        assert!(
            line.starts_with("rank 0 is to be reached at localhost:4000, which means "),
            "{line}"
        );
        assert!(
            line.contains("/etc/hosts") && !line.contains("index"),
            "{line}"
        );
    }

    #[test]
    fn who_finds_another_rank_is_asked_for_its_index_where_its_address_is_not_its_own() {
        let peer = Member::new(Rank::CHIEF, "127.0.0.1:4001");
        let said = |error: JoinError| {
            let (config, error) = (config("192.0.2.77:4000"), OperationError::from(error));
            block_on(lines(&error, &config, ALL.parse().unwrap()))
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
        let lines = block_on(async { without_a_way(&missing, soon()).await });
        let [line] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert!(line.starts_with("rank 1 (aaa"), "{line}");
        assert!(line.contains("correct the list"), "{line}");
    }
}
