//! Names of TPU slices such as `v5e:2x4`, checked against a table of generations and their largest
//! sizes before libtpu sees them. Device order within a slice is in `slice`.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::Error;
use crate::generation::GENERATIONS;

/// The name of a slice of TPUs: a generation, and its chips along each side, such as `v5e:2x4`.
///
/// libtpu itself takes names that mean nothing for a slice of eight devices, and dies of a side of
/// length 0, so names are read here first. A side counts chips, of which some generations have two
/// devices each. Hosts have 2×2 chips: along x and y a slice has an even number of chips, or one.
///
/// ```
/// use meshwork_accel_tpu::tpu::TopologyName;
///
/// let name: TopologyName = "v4:2x2x4".parse()?;
/// assert_eq!((name.generation(), name.chips()), ("v4", 16));
/// assert!("v4-8".parse::<TopologyName>().is_err());
/// # Ok::<(), meshwork_accel_tpu::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TopologyName {
    generation: &'static str,
    sides: [usize; 3],
    dims: usize,
}

impl TopologyName {
    /// The generation, such as `v5e`.
    #[must_use]
    pub const fn generation(&self) -> &'static str {
        self.generation
    }

    /// Chips along x, y and, where the generation has it, z.
    #[must_use]
    pub fn sides(&self) -> &[usize] {
        &self.sides[..self.dims]
    }

    /// All chips.
    #[must_use]
    pub fn chips(&self) -> usize {
        // At most `most` of its generation.
        self.sides.iter().product()
    }
}

impl FromStr for TopologyName {
    type Err = Error;

    /// # Errors
    /// [`Error::TopologyName`], [`Error::Generation`], [`Error::TopologySize`].
    fn from_str(name: &str) -> Result<Self, Error> {
        let unreadable = || Error::TopologyName {
            name: name.to_owned(),
        };
        let (generation, size) = name.split_once(':').ok_or_else(unreadable)?;
        let known = GENERATIONS.iter().find(|known| known.name == generation);
        let known = known.ok_or_else(|| Error::Generation {
            generation: generation.to_owned(),
        })?;
        let lengths = size.split('x').map(length).collect::<Option<Vec<_>>>();
        let lengths = lengths.ok_or_else(unreadable)?;
        let refused = || Error::TopologySize {
            generation: known.name,
            size: size.to_owned(),
            sides: known.sides,
            most: known.most,
        };
        if lengths.len() != known.sides {
            return Err(refused());
        }
        let mut sides = [1; 3];
        sides[..known.sides].copy_from_slice(&lengths);
        let chips = sides.into_iter().try_fold(1_usize, usize::checked_mul);
        let whole_hosts = sides[..2].iter().all(|&side| side == 1 || side % 2 == 0);
        match chips {
            Some(chips) if (1..=known.most).contains(&chips) && whole_hosts => Ok(Self {
                generation: known.name,
                sides,
                dims: known.sides,
            }),
            _ => Err(refused()),
        }
    }
}

/// As libtpu takes it; inverse of reading.
impl Display for TopologyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides: Vec<_> = self.sides().iter().map(usize::to_string).collect();
        write!(f, "{}:{}", self.generation, sides.join("x"))
    }
}

/// The length of a side, written without signs and leading zeros.
fn length(text: &str) -> Option<usize> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Result<TopologyName, Error> {
        name.parse()
    }

    #[test]
    fn names_are_read_and_written_alike() {
        for name in [
            "v2:2x2",
            "v3:32x32",
            "v4:2x2x3",
            "v5e:1x1",
            "v5e:1x4",
            "v5p:16x20x28",
            "v6e:16x16",
            "tpu7x:1x1x1",
        ] {
            assert_eq!(read(name).unwrap().to_string(), name);
        }
        assert_eq!(read("v5p:2x4x6").unwrap().sides(), [2, 4, 6]);
        assert_eq!(read("v5e:2x4").unwrap().sides(), [2, 4]);
    }

    #[test]
    fn what_libtpu_takes_for_a_default_slice_is_no_name() {
        for name in [
            "",
            "v4-8",
            "v5e",
            "v5e:",
            "v5e:2",
            "v5e:2x",
            "v5e:2x-4",
            "v5e:2x4 ",
            "v5e:02x4",
            "v4:2x2x2_twisted",
        ] {
            assert!(read(name).is_err(), "{name:?}");
        }
        assert_eq!(
            read("v4-8").unwrap_err().to_string(),
            "\"v4-8\" is no TPU topology: write a generation, a colon, and its chips along each side, such as v5e:2x4 or v4:2x2x1"
        );
    }

    #[test]
    fn unknown_generations_are_told_which_there_are() {
        assert_eq!(
            read("v7x:2x2x1").unwrap_err().to_string(),
            "\"v7x\" is no TPU generation: use one of v2, v3, v4, v5e, v5p, v6e, tpu7x"
        );
        assert!(matches!(read("V5E:2x4"), Err(Error::Generation { .. })));
    }

    #[test]
    fn slices_are_of_whole_hosts_and_no_larger_than_they_are_built() {
        for name in [
            "v5e:0x0",
            "v5e:3x5",
            "v5e:2x3",
            "v5e:2x2x1",
            "v5e:32x32",
            "v4:4x4",
            "v4:3x2x2",
            "v4:18446744073709551615x2x2",
        ] {
            assert!(
                matches!(read(name), Err(Error::TopologySize { .. })),
                "{name}"
            );
        }
        assert_eq!(
            read("v5e:2x3").unwrap_err().to_string(),
            "TPU v5e has no slice 2x3: give 2 sides, the first two even or 1, of at most 256 chips in all"
        );
    }
}
