//! `LayoutPattern`: layouts with `match` and `any` in place of specs, and how a tensor's own layout
//! fills them in.

use std::fmt::{self, Display};

use meshwork_core::{DimName, Mesh};
use smallvec::SmallVec;

use crate::{Error, Layout, LayoutType, PartialReduction, ShardingSpec};

/// The word for a tensor dimension that keeps the spec it has; no mesh dimension has this name.
pub const MATCH: &str = "match";

/// The word for a tensor dimension whose spec does not matter; no mesh dimension has this name.
pub(crate) const ANY: &str = "any";

/// A layout of which some tensor dimensions are left open until it is resolved for a tensor.
///
/// It says where a tensor is to go relative to where it is: [`resolve`](Self::resolve) makes a
/// [`Layout`] of it. TensorFlow's layouts may be patterns; here a [`Layout`] is complete.
///
/// ```
/// use meshwork_core::Mesh;
/// use meshwork_layout::{Layout, LayoutPattern};
///
/// let mesh = Mesh::new([("x", 2), ("y", 4)])?;
/// let pattern = LayoutPattern::from_names(["unsharded", "match"], &mesh)?;
/// let source = Layout::from_names(["x", "y"], &mesh)?;
/// assert_eq!(pattern.resolve(&source)?, Layout::from_names(["unsharded", "y"], &mesh)?);
/// # Ok::<(), meshwork_layout::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LayoutPattern {
    /// With open dimensions unsharded.
    fixed: Layout,
    /// The open dimensions, ascending, each by its number.
    open: SmallVec<[(usize, Open); 1]>,
}

/// The spec of one tensor dimension in a pattern.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SpecPattern {
    /// It has this spec.
    Exactly(ShardingSpec),
    /// It keeps the spec that it has.
    Match,
    /// Its spec does not matter: it keeps the one it has where that can be, and is whole otherwise.
    Any,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Open {
    Match,
    Any,
}

impl LayoutPattern {
    /// A pattern with one spec for each tensor dimension.
    ///
    /// # Errors
    /// [`Error::RepeatedMatch`], and those of [`Layout::new`].
    pub fn new(specs: impl IntoIterator<Item = SpecPattern>, mesh: &Mesh) -> Result<Self, Error> {
        let mut open: SmallVec<[(usize, Open); 1]> = SmallVec::new();
        let mut fixed = Vec::new();
        for (axis, spec) in specs.into_iter().enumerate() {
            let left = match spec {
                SpecPattern::Exactly(spec) => {
                    fixed.push(spec);
                    continue;
                }
                SpecPattern::Match => Open::Match,
                SpecPattern::Any => Open::Any,
            };
            let matched = open.iter().find(|(_, left)| *left == Open::Match);
            if let (Open::Match, Some(&(first, _))) = (left, matched) {
                let second = axis;
                return Err(Error::RepeatedMatch { first, second });
            }
            open.push((axis, left));
            fixed.push(ShardingSpec::unsharded());
        }
        let fixed = Layout::new(fixed, mesh)?;
        Ok(Self { fixed, open })
    }

    /// A pattern with a word for each tensor dimension, as TensorFlow's constructor takes them: the
    /// name of a mesh dimension, [`UNSHARDED`](crate::UNSHARDED), or [`MATCH`].
    ///
    /// # Errors
    /// Those of [`new`](Self::new) and of [`ShardingSpec::from_name`].
    pub fn from_names(
        names: impl IntoIterator<Item = impl AsRef<str>>,
        mesh: &Mesh,
    ) -> Result<Self, Error> {
        let specs = names.into_iter().map(|name| match name.as_ref() {
            MATCH => Ok(SpecPattern::Match),
            name => ShardingSpec::from_name(name).map(SpecPattern::Exactly),
        });
        Self::new(specs.collect::<Result<Vec<_>, _>>()?, mesh)
    }

    /// The layout that this pattern gives a tensor whose layout is `source`.
    ///
    /// # Errors
    /// [`Error::PatternRank`] for a layout of another rank, [`Error::RepeatedDim`] and
    /// [`Error::CutAndPartial`] where the spec to be kept needs a mesh dimension that the pattern
    /// uses otherwise, which ends TensorFlow; [`Error::Mesh`] where the pattern's mesh does not
    /// have it.
    pub fn resolve(&self, source: &Layout) -> Result<Layout, Error> {
        if source.rank() != self.rank() {
            return Err(Error::PatternRank {
                found: source.rank(),
                expected: self.rank(),
            });
        }
        let kept = self.dims_kept(source);
        let specs = self
            .specs()
            .zip(source.specs())
            .map(|(own, theirs)| match own {
                SpecPattern::Exactly(spec) => spec,
                SpecPattern::Match => theirs.clone(),
                SpecPattern::Any if theirs.dims().iter().any(|dim| kept.contains(&dim)) => {
                    ShardingSpec::unsharded()
                }
                SpecPattern::Any => theirs.clone(),
            });
        self.fixed.with_specs(specs)
    }

    /// The same pattern with exactly these mesh dimensions partial; see [`Layout::with_partial`].
    ///
    /// # Errors
    /// Those of [`Layout::with_partial`].
    pub fn with_partial(
        self,
        dims: impl IntoIterator<Item = impl AsRef<str>>,
        reduction: PartialReduction,
    ) -> Result<Self, Error> {
        Ok(Self {
            fixed: self.fixed.with_partial(dims, reduction)?,
            open: self.open,
        })
    }

    /// The same pattern, of the type [`LayoutType::Parted`]; see [`Layout::to_parted`].
    #[must_use]
    pub fn to_parted(&self) -> Self {
        Self {
            fixed: self.fixed.to_parted(),
            open: self.open.clone(),
        }
    }

    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        self.fixed.mesh()
    }

    /// The meaning of sharded tensor dimensions for ops.
    #[must_use]
    pub fn layout_type(&self) -> LayoutType {
        self.fixed.layout_type()
    }

    /// The partial mesh dimensions, major to minor.
    pub fn partial(&self) -> impl ExactSizeIterator<Item = &DimName> {
        self.fixed.partial()
    }

    /// The reduction along the [`partial`](Self::partial) mesh dimensions, if there are any.
    #[must_use]
    pub fn reduction(&self) -> Option<PartialReduction> {
        self.fixed.reduction()
    }

    /// The number of dimensions of the tensors.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.fixed.rank()
    }

    /// The spec of each tensor dimension.
    #[doc(alias = "sharding_specs")]
    pub fn specs(&self) -> impl ExactSizeIterator<Item = SpecPattern> {
        let open = |axis| self.open.iter().find(|(other, _)| *other == axis);
        self.fixed
            .specs()
            .enumerate()
            .map(move |(axis, spec)| match open(axis) {
                Some((_, Open::Match)) => SpecPattern::Match,
                Some((_, Open::Any)) => SpecPattern::Any,
                None => SpecPattern::Exactly(spec.clone()),
            })
    }

    /// The mesh dimensions that are used before those of the dimensions left to any.
    fn dims_kept<'a>(&'a self, source: &'a Layout) -> Vec<&'a DimName> {
        let matched = self.open.iter().filter(|(_, open)| *open == Open::Match);
        let matched = matched.filter_map(|(axis, _)| source.specs().nth(*axis));
        let specs = self.fixed.specs().chain(matched);
        specs
            .flat_map(ShardingSpec::dims)
            .chain(self.fixed.partial())
            .collect()
    }
}

impl From<Layout> for LayoutPattern {
    fn from(layout: Layout) -> Self {
        Self {
            fixed: layout,
            open: SmallVec::new(),
        }
    }
}

/// Succeeds where nothing is left open, [`Error::OpenSpec`] otherwise.
impl TryFrom<LayoutPattern> for Layout {
    type Error = Error;

    fn try_from(pattern: LayoutPattern) -> Result<Self, Error> {
        match pattern.open.first() {
            None => Ok(pattern.fixed),
            Some(&(axis, open)) => Err(Error::OpenSpec {
                axis,
                word: open.word(),
            }),
        }
    }
}

impl From<ShardingSpec> for SpecPattern {
    fn from(spec: ShardingSpec) -> Self {
        Self::Exactly(spec)
    }
}

/// As the spec, `match`, or `any`.
impl Display for SpecPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(spec) => spec.fmt(f),
            Self::Match => f.write_str(Open::Match.word()),
            Self::Any => f.write_str(Open::Any.word()),
        }
    }
}

impl Open {
    fn word(self) -> &'static str {
        match self {
            Self::Match => MATCH,
            Self::Any => ANY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh() -> Mesh {
        Mesh::new([("x", 2), ("y", 4)]).unwrap()
    }

    fn layout(names: &[&str]) -> Layout {
        Layout::from_names(names, &mesh()).unwrap()
    }

    fn pattern(names: &[&str]) -> LayoutPattern {
        let spec = |name: &&str| match *name {
            ANY => SpecPattern::Any,
            MATCH => SpecPattern::Match,
            name => ShardingSpec::from_name(name).unwrap().into(),
        };
        LayoutPattern::new(names.iter().map(spec), &mesh()).unwrap()
    }

    #[track_caller]
    fn check(names: &[&str], source: &[&str], expected: &[&str]) {
        let resolved = pattern(names).resolve(&layout(source));
        assert_eq!(resolved, Ok(layout(expected)));
    }

    #[test]
    fn a_matched_dimension_keeps_its_spec() {
        check(&["match", "unsharded"], &["x", "y"], &["x", "unsharded"]);
        check(&["x", "match"], &["unsharded", "y"], &["x", "y"]);
        check(
            &["unsharded", "match"],
            &["x", "unsharded"],
            &["unsharded", "unsharded"],
        );
    }

    #[test]
    fn a_dimension_left_to_any_gives_way() {
        check(&["any", "any"], &["x", "y"], &["x", "y"]);
        check(&["x", "any"], &["unsharded", "x"], &["x", "unsharded"]);
        check(&["any", "match"], &["y", "x"], &["y", "x"]);
        let nested = ShardingSpec::nested(["y", "x"]).unwrap();
        let source = Layout::new([nested, ShardingSpec::unsharded()], &mesh());
        assert_eq!(
            pattern(&["any", "x"]).resolve(&source.unwrap()),
            Ok(layout(&["unsharded", "x"]))
        );
    }

    #[test]
    fn a_match_that_needs_a_used_mesh_dimension_is_refused() {
        let dim = DimName::new("x").unwrap();
        assert_eq!(
            pattern(&["x", "match"]).resolve(&layout(&["unsharded", "x"])),
            Err(Error::RepeatedDim {
                dim,
                first: 0,
                second: 1
            })
        );
    }

    #[test]
    fn a_pattern_is_resolved_for_tensors_of_its_rank() {
        let wrong = pattern(&["match"]).resolve(&layout(&["x", "y"]));
        assert_eq!(
            wrong,
            Err(Error::PatternRank {
                found: 2,
                expected: 1
            })
        );
    }

    #[test]
    fn one_dimension_at_most_is_left_to_match() {
        assert_eq!(
            LayoutPattern::from_names(["match", "x", "match"], &mesh()),
            Err(Error::RepeatedMatch {
                first: 0,
                second: 2
            })
        );
    }

    #[test]
    fn a_pattern_with_nothing_open_is_its_layout() {
        let whole = layout(&["x", "unsharded"]);
        let partial = whole
            .clone()
            .with_partial(["y"], PartialReduction::Sum)
            .unwrap();
        for layout in [whole.to_parted(), whole, partial] {
            let pattern = LayoutPattern::from(layout.clone());
            assert_eq!(pattern.resolve(&layout), Ok(layout.clone()));
            assert_eq!(Layout::try_from(pattern), Ok(layout));
        }
        assert_eq!(
            Layout::try_from(pattern(&["x", "any"])),
            Err(Error::OpenSpec { axis: 1, word: ANY })
        );
    }

    #[test]
    fn the_type_outlives_resolution() {
        let parted = pattern(&["match", "unsharded"]).to_parted();
        let source = layout(&["x", "y"]);
        assert_eq!(
            parted.resolve(&source),
            Ok(layout(&["x", "unsharded"]).to_parted())
        );
    }
}
