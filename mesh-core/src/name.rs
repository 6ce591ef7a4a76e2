//! `DimName`: names of mesh dimensions, restricted to those that survive TensorFlow's text form.
//! Names of meshes are checked in `mesh/builder`, those of devices in `device`.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use crate::Error;

/// The name of a mesh dimension, such as `batch`.
///
/// A name is not empty, is none of the words that stand for something else in a layout
/// (`unsharded`, `match`, `any`), and has no control character, `|`, `,` or `=`, so that it can be
/// written in the text form of a mesh and read back. TensorFlow accepts all of these in some places
/// and fails on them in others. Blanks are part of the name, as they are there; the text form of a
/// layout has no place for them.
///
/// Clones share the text.
///
/// ```
/// use meshwork_core::{DimName, Error};
///
/// assert_eq!(DimName::new("batch")?.as_str(), "batch");
/// assert!(matches!(DimName::new("any"), Err(Error::ReservedDimName { .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DimName(Arc<str>);

impl DimName {
    /// A name, after the checks above.
    ///
    /// # Errors
    /// [`Error::EmptyDimName`], [`Error::ReservedDimName`], [`Error::DimNameCharacter`].
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::EmptyDimName);
        }
        if RESERVED.contains(&name) {
            return Err(Error::ReservedDimName {
                name: name.to_owned(),
            });
        }
        let separates = |c: char| c.is_control() || "|,=".contains(c);
        if let Some(character) = name.chars().find(|&c| separates(c)) {
            return Err(Error::DimNameCharacter {
                name: name.to_owned(),
                character,
            });
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for DimName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Display for DimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DimName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}

const RESERVED: [&str; 3] = ["unsharded", "match", "any"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reserved_word_is_refused_and_only_as_written() {
        for name in RESERVED {
            let expected = Error::ReservedDimName { name: name.into() };
            assert_eq!(DimName::new(name), Err(expected));
            assert!(DimName::new(name.to_uppercase()).is_ok());
        }
    }

    #[test]
    fn the_empty_name_is_refused() {
        assert_eq!(DimName::new(""), Err(Error::EmptyDimName));
    }

    #[test]
    fn a_name_has_no_character_that_separates() {
        for (name, character) in [("a|b", '|'), ("a,b", ','), ("x=2", '='), ("x\n", '\n')] {
            let name = name.to_owned();
            let expected = Error::DimNameCharacter {
                name: name.clone(),
                character,
            };
            assert_eq!(DimName::new(name), Err(expected));
        }
        for name in ["x", "0", "größe", "a:b", "batch_1-2", "*", " x", "x y"] {
            assert_eq!(DimName::new(name).unwrap().to_string(), name);
        }
    }
}
