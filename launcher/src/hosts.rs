//! On which hosts the workers of a run are started: a list such as `a,b` or `a:2,me@b:4`, and how
//! ranks are placed on it.

use std::fmt::{self, Display};
use std::num::NonZeroUsize;
use std::str::FromStr;

use crate::LaunchError;

/// The hosts of a run, in order of rank: the first workers are on the first host.
///
/// Each is a name or an address, as all other hosts reach it, perhaps with the user to log in as
/// before it (`me@b`), and with the number of its workers behind it (`b:4`) or none on all of them;
/// an address of IPv6 is in brackets. Without numbers the workers of a run are shared out evenly.
///
/// ```
/// use meshwork_launcher::HostList;
///
/// let hosts: HostList = "a:2,me@[2001:db8::7]:1".parse()?;
/// assert_eq!(hosts.to_string(), "a:2,me@[2001:db8::7]:1");
/// assert_eq!(hosts.workers(), 3);
/// # Ok::<(), meshwork_launcher::LaunchError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostList {
    hosts: Vec<Host>,
    /// In the order of the hosts, where the list has them.
    workers: Option<Vec<NonZeroUsize>>,
}

/// A host, without the number of its workers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Host {
    user: Option<String>,
    name: String,
}

impl HostList {
    /// How many workers they have by their numbers, or one each.
    #[must_use]
    pub fn workers(&self) -> usize {
        match &self.workers {
            None => self.hosts.len(),
            Some(workers) => workers
                .iter()
                .fold(0, |sum, workers| sum.saturating_add(workers.get())),
        }
    }

    /// The host of each of so many workers, in order of rank.
    ///
    /// # Errors
    /// [`LaunchError::HostWorkers`] where the numbers add up to something else;
    /// [`LaunchError::IdleHost`] where there are fewer workers than hosts.
    pub(crate) fn place(&self, workers: usize) -> Result<Vec<&Host>, LaunchError> {
        let hosts = self.hosts.len();
        let counts: Vec<usize> = match &self.workers {
            Some(counts) if self.workers() == workers => counts.iter().map(|n| n.get()).collect(),
            Some(_) => {
                return Err(LaunchError::HostWorkers {
                    listed: self.workers(),
                    workers,
                });
            }
            None if workers < hosts => return Err(LaunchError::IdleHost { hosts, workers }),
            None => (0..hosts)
                .map(|host| (host + 1) * workers / hosts - host * workers / hosts)
                .collect(),
        };
        let placed = self.hosts.iter().zip(counts);
        Ok(placed
            .flat_map(|(host, count)| std::iter::repeat_n(host, count))
            .collect())
    }
}

impl FromStr for HostList {
    type Err = LaunchError;

    fn from_str(list: &str) -> Result<Self, LaunchError> {
        let refused = |host: &str| LaunchError::Host { host: host.into() };
        let (mut hosts, mut counts) = (Vec::new(), Vec::new());
        for text in list.split(',') {
            let (host, count) = parse(text).ok_or_else(|| refused(text))?;
            hosts.push(host);
            counts.push(count);
        }
        let numbered: Vec<_> = counts.iter().copied().flatten().collect();
        if !numbered.is_empty() && numbered.len() < hosts.len() {
            return Err(LaunchError::HostNumbers {
                numbered: numbered.len(),
                hosts: hosts.len(),
            });
        }
        if let Some(host) = hosts.iter().find(|host| host.is_loopback())
            && let Some(other) = hosts.iter().find(|host| !host.is_loopback())
        {
            return Err(LaunchError::Loopback {
                host: host.name.clone(),
                other: other.name.clone(),
            });
        }
        Ok(Self {
            hosts,
            workers: (!numbered.is_empty()).then_some(numbered),
        })
    }
}

impl Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, host) in self.hosts.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            if let Some(user) = &host.user {
                write!(f, "{user}@")?;
            }
            f.write_str(&host.in_address())?;
            if let Some(workers) = &self.workers {
                write!(f, ":{}", workers[place])?;
            }
        }
        Ok(())
    }
}

impl Host {
    /// What `ssh` is told: a name or an address without brackets, and the user.
    pub(crate) fn destination(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.name),
            None => self.name.clone(),
        }
    }

    /// As it stands before a port.
    pub(crate) fn in_address(&self) -> String {
        match self.name.contains(':') {
            true => format!("[{}]", self.name),
            false => self.name.clone(),
        }
    }

    /// Whether it is another machine on each machine.
    fn is_loopback(&self) -> bool {
        self.name == "localhost" || self.name == "::1" || self.name.starts_with("127.")
    }
}

/// A host and the number of its workers.
fn parse(text: &str) -> Option<(Host, Option<NonZeroUsize>)> {
    let (user, rest) = match text.split_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, text),
    };
    let (name, count) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (name, behind) = rest.split_once(']')?;
            let is_address = name.parse::<std::net::Ipv6Addr>().is_ok();
            let count = match behind {
                "" => None,
                _ => Some(behind.strip_prefix(':')?),
            };
            (is_address.then_some(name)?, count)
        }
        None => match rest.split_once(':') {
            Some((name, count)) => (is_name(name).then_some(name)?, Some(count)),
            None => (is_name(rest).then_some(rest)?, None),
        },
    };
    let user = match user {
        Some(user) => Some(is_name(user).then(|| user.to_owned())?),
        None => None,
    };
    let count = match count {
        Some(count) => Some(count.parse().ok()?),
        None => None,
    };
    let name = name.to_owned();
    Some((Host { user, name }, count))
}

/// Nothing that `ssh` could take for an option, nor a shell for anything but a word.
fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(list: &str, workers: usize) -> Result<String, LaunchError> {
        let hosts: HostList = list.parse()?;
        let places = hosts.place(workers)?;
        let names: Vec<_> = places.iter().map(|host| host.destination()).collect();
        Ok(names.join(" "))
    }

    #[test]
    fn workers_are_placed_host_by_host() {
        assert_eq!(placed("a,b", 2).unwrap(), "a b");
        assert_eq!(placed("a,b,c", 7).unwrap(), "a a b b c c c");
        assert_eq!(placed("a:1,me@b:3", 4).unwrap(), "a me@b me@b me@b");
        assert_eq!(placed("[::1]:2", 2).unwrap(), "::1 ::1");
    }

    #[test]
    fn lists_that_do_not_fit_the_workers_are_refused_by_both_numbers() {
        assert_eq!(
            placed("a,b,c", 2).unwrap_err().to_string(),
            "2 workers would leave some of 3 hosts idle: ask for 3 or more, or list fewer hosts"
        );
        assert_eq!(
            placed("a:2,b:2", 3).unwrap_err().to_string(),
            "the hosts are listed with 4 workers in all, and 3 are asked for: leave out one of both numbers"
        );
        assert_eq!(
            placed("a:2,b,c:1", 3).unwrap_err().to_string(),
            "2 of 3 hosts have a number of workers: give it to each, as in a:2,b:4, or to none"
        );
        assert_eq!(
            placed("b,localhost", 2).unwrap_err().to_string(),
            "host localhost is another machine for b than here: name it as b reaches it"
        );
    }

    #[test]
    fn what_is_no_host_is_refused_by_name() {
        let wrong = [
            "",
            "a,",
            "-oProxyCommand=x",
            "a b",
            "a:0",
            "a:x",
            "a:",
            "me@",
            "@a",
            "[a]",
            "[::1",
            "[::1]2",
            "a;b",
            "::1",
        ];
        for list in wrong {
            let refused = list.parse::<HostList>().unwrap_err();
            assert!(
                matches!(refused, LaunchError::Host { .. }),
                "{list}: {refused}"
            );
        }
    }
}
