//! Where a process stands before it joins: on the start list, or nowhere yet.

use std::env;

use super::{GroupConfig, WORLD_LIMIT, world_of};
use crate::identity::fill_random;
use crate::{ConfigError, JobIdentity, Rank};

/// Member ids of newcomers that no list names begin here, far above all places in lists.
const UNLISTED: u32 = 1 << 31;

/// What a process knows of others and itself before it joins.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Everybody who is listed, the founders first.
    members: Vec<String>,
    /// How many of them begin the group.
    founders: u32,
    /// The most members that the group may come to have.
    most: u32,
    /// This process's place in the list, or a number that no list has.
    member_id: u32,
    /// Where to ask, and where to be reached, for a process that is not listed.
    newcomer: Option<Newcomer>,
}

#[derive(Clone, Debug)]
struct Newcomer {
    seeds: Vec<String>,
    address: Option<String>,
}

impl Place {
    pub(super) fn listed(members: Vec<String>, rank: Rank, world: u32) -> Self {
        Self {
            members,
            founders: world,
            most: world,
            member_id: rank.number(),
            newcomer: None,
        }
    }
}

impl GroupConfig {
    /// The environment variable for how many members a group begins with and may come to have:
    /// `2:5`, see [`with_workers`](Self::with_workers).
    pub const WORKERS_ENV: &'static str = "MESHWORK_WORKERS";

    /// The environment variable with addresses of members that a newcomer asks to be let in, with
    /// commas between them: see [`newcomer`](Self::newcomer).
    pub const SEEDS_ENV: &'static str = "MESHWORK_SEEDS";

    /// The environment variable for where others reach a newcomer: see
    /// [`with_address`](Self::with_address).
    pub const ADDRESS_ENV: &'static str = "MESHWORK_ADDRESS";

    /// The environment variable for what program this is: see [`with_program`](Self::with_program).
    pub const PROGRAM_ENV: &'static str = "MESHWORK_PROGRAM";

    /// This process is on no list: it asks to be let into a group that runs, by
    /// [`Group::rejoin`](crate::Group::rejoin).
    ///
    /// `seeds` are `host:port` of some members, or names that stand for several, as those of a
    /// headless service in Kubernetes do; one that is reached tells where all others are. The group
    /// has to have room: see [`with_workers`](Self::with_workers).
    ///
    /// ```
    /// use meshwork_collectives::{GroupConfig, JobSecret};
    ///
    /// let seeds = ["trainers.default.svc.cluster.local:4000"];
    /// let config = GroupConfig::newcomer(seeds, JobSecret::generate()?)?;
    /// assert!(!config.is_founder());
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::NoSeeds`]; [`ConfigError::Identity`] where the system has no randomness.
    pub fn newcomer(
        seeds: impl IntoIterator<Item = impl Into<String>>,
        identity: impl Into<JobIdentity>,
    ) -> Result<Self, ConfigError> {
        let seeds: Vec<String> = seeds.into_iter().map(Into::into).collect();
        if seeds.is_empty() {
            return Err(ConfigError::NoSeeds);
        }
        let mut random = [0; 4];
        fill_random(&mut random)?;
        let place = Place {
            members: Vec::new(),
            founders: 0,
            // Members tell it how many there may be.
            most: WORLD_LIMIT,
            member_id: UNLISTED | (u32::from_le_bytes(random) >> 2),
            newcomer: Some(Newcomer {
                seeds,
                address: None,
            }),
        };
        Ok(Self::at(place, identity.into()))
    }

    /// The seeds in [`SEEDS_ENV`](Self::SEEDS_ENV), if it is set.
    #[must_use]
    pub fn seeds_from_env() -> Option<Vec<String>> {
        let value = env::var_os(Self::SEEDS_ENV)?;
        let value = value.to_string_lossy();
        let seeds = value.split(',').map(str::trim);
        Some(
            seeds
                .filter(|seed| !seed.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }

    /// The group begins with the first `least` of the listed members, and may grow to `most`; in
    /// the same way on every rank. Without it there are as many as are listed, at first and at
    /// most.
    ///
    /// Those who are listed behind the founders come in later, like newcomers that are not listed
    /// at all. Why it is always the first: any two of five could be two times two.
    ///
    /// # Errors
    /// [`ConfigError::Workers`] where there cannot be so few or so many.
    pub fn with_workers(mut self, least: u32, most: u32) -> Result<Self, ConfigError> {
        let listed = world_of(self.place.members.len());
        if least == 0 || least > listed || most < least || most > WORLD_LIMIT {
            return Err(ConfigError::Workers {
                least,
                most,
                listed,
                limit: WORLD_LIMIT,
            });
        }
        self.place.founders = least;
        self.place.most = most;
        Ok(self)
    }

    /// Where others reach this newcomer, as `host:port`. Without it, at the address from which it
    /// reaches the first seed, and any free port.
    #[must_use]
    pub fn with_address(mut self, address: impl Into<String>) -> Self {
        if let Some(newcomer) = &mut self.place.newcomer {
            newcomer.address = Some(address.into());
        }
        self
    }

    /// The number that names this newcomer in its certificate, where that is the
    /// [user's own](crate::Certificates): it has to be valid for `rank-N` with this `N`, which no
    /// other process has.
    #[must_use]
    pub fn with_member_id(mut self, member_id: u32) -> Self {
        if self.place.newcomer.is_some() {
            self.place.member_id = member_id;
        }
        self
    }

    /// A word for the program that this process runs, in the same way on every rank. Without it
    /// that is the executable file itself, byte by byte: who runs another is not let into a group
    /// that runs. For one program that has several builds, or is only a part of what it executes.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<String>) -> Self {
        self.program = Some(program.into());
        self
    }

    pub(super) fn with_place_from_env(mut self) -> Result<Self, ConfigError> {
        if let Some(address) = env::var_os(Self::ADDRESS_ENV) {
            self = self.with_address(address.to_string_lossy());
        }
        match env::var_os(Self::WORKERS_ENV) {
            Some(value) if self.place.newcomer.is_none() => {
                let (least, most) = workers(&value.to_string_lossy())?;
                self.with_workers(least, most)
            }
            Some(_) | None => Ok(self),
        }
    }

    /// This process's rank, if it begins the group, and else the number that it is known by.
    #[must_use]
    pub fn rank(&self) -> Rank {
        Rank::new(self.place.member_id)
    }

    /// The addresses of those who begin the group, in the order of their ranks; none where they are
    /// not known.
    #[must_use]
    pub fn members(&self) -> &[String] {
        &self.place.members[..self.place.founders as usize]
    }

    /// Whether this process is one of those who begin the group.
    #[must_use]
    pub fn is_founder(&self) -> bool {
        self.place.newcomer.is_none() && self.place.member_id < self.place.founders
    }

    /// The most members that the group may come to have.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.place.most
    }

    /// Everybody who is listed, those who come in later too; the place is the member id.
    pub(crate) fn listed(&self) -> &[String] {
        &self.place.members
    }

    /// Where to ask for members, for a process that is not listed.
    pub(crate) fn seeds(&self) -> &[String] {
        match &self.place.newcomer {
            Some(newcomer) => &newcomer.seeds,
            None => &[],
        }
    }

    /// Where others reach this process, if that is known.
    pub(crate) fn own_address(&self) -> Option<&str> {
        match &self.place.newcomer {
            Some(newcomer) => newcomer.address.as_deref(),
            None => {
                let own = self.place.members.get(self.place.member_id as usize);
                own.map(String::as_str)
            }
        }
    }
}

fn workers(value: &str) -> Result<(u32, u32), ConfigError> {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let range = value.split_once(':');
    let range = range.and_then(|(least, most)| Some((number(least)?, number(most)?)));
    range.ok_or_else(|| ConfigError::WorkersFormat {
        value: value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobSecret;

    fn listed(count: usize, rank: u32) -> GroupConfig {
        let members = (0..count).map(|port| format!("a:{port}"));
        GroupConfig::new(members, Rank::new(rank), JobSecret::generate().unwrap()).unwrap()
    }

    #[test]
    fn the_first_listed_begin_the_group_and_the_others_come_later() {
        let whole = listed(5, 3);
        assert!(whole.is_founder() && whole.members().len() == 5 && whole.most() == 5);
        let begun = listed(5, 1).with_workers(2, 7).unwrap();
        assert!(begun.is_founder() && begun.members() == ["a:0", "a:1"] && begun.most() == 7);
        let later = listed(5, 3).with_workers(2, 5).unwrap();
        assert!(!later.is_founder() && later.own_address() == Some("a:3"));
        assert_eq!((later.rank(), later.listed().len()), (Rank::new(3), 5));
    }

    #[test]
    fn ranges_that_cannot_be_are_refused() {
        for (least, most) in [(0, 3), (4, 5), (2, 1), (1, WORLD_LIMIT + 1)] {
            let refused = listed(3, 0).with_workers(least, most).err();
            let expected = ConfigError::Workers {
                least,
                most,
                listed: 3,
                limit: WORLD_LIMIT,
            };
            assert_eq!(refused, Some(expected));
        }
        assert_eq!(workers(" 2 : 5"), Ok((2, 5)));
        for wrong in ["", "2", "2:", "a:5", "2:5:6", "-1:5"] {
            let value = wrong.to_owned();
            assert_eq!(workers(wrong), Err(ConfigError::WorkersFormat { value }));
        }
    }

    #[test]
    fn newcomers_have_seeds_and_numbers_that_no_list_has() {
        let secret = JobSecret::generate().unwrap();
        let none: [&str; 0] = [];
        let refused = GroupConfig::newcomer(none, secret.clone()).err();
        assert_eq!(refused, Some(ConfigError::NoSeeds));
        let newcomer = GroupConfig::newcomer(["a:1"], secret).unwrap();
        assert!(!newcomer.is_founder() && newcomer.members().is_empty());
        assert!(newcomer.rank().number() >= UNLISTED && newcomer.own_address().is_none());
        let named = newcomer.with_address("b:2").with_member_id(9);
        assert_eq!(named.own_address(), Some("b:2"));
        assert_eq!(named.rank(), Rank::new(9));
    }
}
