//! Views of meshes against explicit lists of ranks under random sequences of steps, and meshes made
//! of views.

use proptest::prelude::*;

use super::*;

fn mesh(shape: &[usize]) -> Mesh {
    let names = ('a'..).map(|name| name.to_string());
    Mesh::new(names.zip(shape.iter().copied())).unwrap()
}

/// The ranks of the mesh that a view stands for, in the view's order.
fn ranks(view: &Submesh) -> Vec<usize> {
    let ranks = view.shape().ranks();
    ranks
        .map(|rank| view.rank_in_mesh(rank).unwrap().index())
        .collect()
}

#[test]
fn views_hold_the_ranks_that_the_picture_shows() {
    let view = || mesh(&[2, 4]).submesh();
    assert_eq!(ranks(&view()), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(ranks(&view().fix("a", 1).unwrap()), [4, 5, 6, 7]);
    assert_eq!(ranks(&view().select("b", 1..3).unwrap()), [1, 2, 5, 6]);
    let split = view().split("b", [("c", 2), ("d", 2)]).unwrap();
    assert!(split.shape().shape().eq([2, 2, 2]));
    assert_eq!(ranks(&split), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(ranks(&split.fix("d", 1).unwrap()), [1, 3, 5, 7]);
    assert_eq!(
        ranks(&view().reorder(["b", "a"]).unwrap()),
        [0, 4, 1, 5, 2, 6, 3, 7]
    );
    let flat = view().flatten(["b", "a"], "z").unwrap();
    assert!(flat.shape().dim_names().map(DimName::as_str).eq(["z"]));
    assert_eq!(ranks(&flat), [0, 4, 1, 5, 2, 6, 3, 7]);
    let back = flat.split("z", [("b", 4), ("a", 2)]).unwrap();
    assert_eq!(back, view().reorder(["b", "a"]).unwrap());
}

#[test]
fn what_a_view_does_not_have_is_refused() {
    let view = || mesh(&[2, 4]).submesh();
    let dim = || DimName::new("b").unwrap();
    assert!(matches!(view().fix("q", 0), Err(Error::UnknownDim { .. })));
    let (coord, size) = (4, 4);
    assert_eq!(
        view().fix("b", 4),
        Err(Error::CoordOutside {
            dim: dim(),
            coord,
            size
        })
    );
    for (start, end) in [(0, 5), (2, 2), (3, 1)] {
        let outside = Error::RangeOutside {
            dim: dim(),
            start,
            end,
            size,
        };
        assert_eq!(view().select("b", start..end), Err(outside));
    }
    for parts in [vec![2, 3], vec![], vec![usize::MAX, 4], vec![0, 4]] {
        let named = parts
            .iter()
            .zip('c'..)
            .map(|(&size, name)| (name.to_string(), size));
        let error = Error::SplitSize {
            dim: dim(),
            size,
            parts: parts.clone(),
        };
        assert_eq!(view().split("b", named), Err(error));
    }
    let twice = view().split("b", [("a", 2), ("d", 2)]);
    assert!(matches!(twice, Err(Error::DuplicateDim { .. })));
    let none: [&str; 0] = [];
    assert_eq!(view().flatten(none, "z"), Err(Error::NoDims));
    assert!(matches!(
        view().flatten(["a", "a"], "z"),
        Err(Error::RepeatedDim { .. })
    ));
    let (found, expected) = (1, 2);
    assert_eq!(
        view().reorder(["b"]),
        Err(Error::DimsLeftOut { found, expected })
    );
    let dim = DimName::new("z").unwrap();
    let flat = view().flatten(["b", "a"], "z").unwrap();
    assert_eq!(
        flat.clone().select("z", 0..3),
        Err(Error::NotStrided { dim })
    );
    assert_eq!(
        ranks(&flat.clone().select("z", 0..8).unwrap()),
        ranks(&flat)
    );
}

#[test]
fn a_mesh_of_its_own_keeps_ids_and_devices() {
    let text = "m|x=2,y=2|4,5,6,7|6,7|/job:w/task:1/gpu:0,/job:w/task:1/gpu:1|\
                /job:w/task:0/gpu:0,/job:w/task:0/gpu:1,/job:w/task:1/gpu:0,/job:w/task:1/gpu:1";
    let mesh: Mesh = text.parse().unwrap();
    let column = mesh.submesh().fix("y", 1).unwrap().to_mesh().unwrap();
    assert_eq!(
        column.to_string(),
        "|x=2|5,7|7|/job:w/task:1/gpu:1|/job:w/task:0/gpu:1,/job:w/task:1/gpu:1"
    );
    let row = mesh.submesh().fix("x", 0).unwrap().to_mesh().unwrap();
    assert_eq!(
        row.to_string(),
        "|y=2|4,5|||/job:w/task:0/gpu:0,/job:w/task:0/gpu:1"
    );
    let one = mesh
        .submesh()
        .fix("x", 1)
        .unwrap()
        .fix("y", 0)
        .unwrap()
        .to_mesh()
        .unwrap();
    assert_eq!(
        one.to_string(),
        "||6|6|/job:w/task:1/gpu:0|/job:w/task:1/gpu:0"
    );
}

/// What can be done to a view; dimensions are picked by number.
#[derive(Clone, Debug)]
enum Step {
    Select(usize, usize, usize),
    Fix(usize, usize),
    Split(usize, usize),
    Flatten(usize, usize),
    Rotate(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_usize..4, 0_usize..3, 1_usize..4)
            .prop_map(|(dim, start, len)| Step::Select(dim, start, len)),
        (0_usize..4, 0_usize..3).prop_map(|(dim, coord)| Step::Fix(dim, coord)),
        (0_usize..4, 1_usize..4).prop_map(|(dim, minor)| Step::Split(dim, minor)),
        (0_usize..4, 0_usize..4).prop_map(|(major, minor)| Step::Flatten(major, minor)),
        (0_usize..4).prop_map(Step::Rotate),
    ]
}

/// A view as a list: the sizes of its dimensions, and the ranks in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Listed {
    sizes: Vec<usize>,
    ranks: Vec<usize>,
}

impl Listed {
    /// Ranks in the order in which coordinates of the new sizes name coordinates of these.
    fn picked(&self, sizes: Vec<usize>, old: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let mut ranks = Vec::new();
        for number in 0..sizes.iter().product() {
            let (mut coords, mut rest) = (vec![0; sizes.len()], number);
            for (coord, size) in coords.iter_mut().zip(&sizes).rev() {
                *coord = rest % size;
                rest /= size;
            }
            let flat = old(&coords)
                .iter()
                .zip(&self.sizes)
                .fold(0, |flat, (coord, size)| flat * size + coord);
            ranks.push(self.ranks[flat]);
        }
        Self { sizes, ranks }
    }

    fn step(&self, step: &Step) -> Self {
        let count = self.sizes.len();
        let sizes = self.sizes.clone();
        match *step {
            Step::Select(dim, start, len) => {
                let dim = dim % count;
                let start = start.min(sizes[dim] - 1);
                let len = len.min(sizes[dim] - start);
                let shorter = (0..count)
                    .map(|d| if d == dim { len } else { sizes[d] })
                    .collect();
                self.picked(shorter, |coords| {
                    (0..count)
                        .map(|d| coords[d] + if d == dim { start } else { 0 })
                        .collect()
                })
            }
            Step::Fix(dim, coord) => {
                let dim = dim % count;
                let coord = coord.min(sizes[dim] - 1);
                let mut fewer = sizes;
                fewer.remove(dim);
                self.picked(fewer, |coords| {
                    [&coords[..dim], &[coord], &coords[dim..]].concat()
                })
            }
            Step::Split(dim, minor) => {
                let dim = dim % count;
                let (mut more, major) = (sizes.clone(), sizes[dim] / minor);
                more.splice(dim..=dim, [major, minor]);
                let (dims, ranks) = (more, self.ranks.clone());
                Self { sizes: dims, ranks }
            }
            Step::Flatten(major, minor) => {
                let (major, minor) = (major % count, minor % count);
                let mut fewer = sizes.clone();
                fewer[major] *= sizes[minor];
                fewer.remove(minor);
                self.picked(fewer, |coords| {
                    let mut old: Vec<usize> = coords.to_vec();
                    old.insert(minor, 0);
                    old[minor] = old[major] % sizes[minor];
                    old[major] /= sizes[minor];
                    old
                })
            }
            Step::Rotate(by) => {
                let mut rotated = sizes;
                rotated.rotate_left(by % count);
                self.picked(rotated, |coords| {
                    let mut old = coords.to_vec();
                    old.rotate_right(by % count);
                    old
                })
            }
        }
    }
}

/// The same step on a view; new dimensions are named by `fresh`.
fn step(view: Submesh, step: &Step, fresh: usize) -> Result<Submesh, Error> {
    let names: Vec<String> = view.shape().dim_names().map(ToString::to_string).collect();
    let sizes: Vec<usize> = view.shape().shape().collect();
    let count = names.len();
    match *step {
        Step::Select(dim, start, len) => {
            let start = start.min(sizes[dim % count] - 1);
            let len = len.min(sizes[dim % count] - start);
            view.select(&names[dim % count], start..start + len)
        }
        Step::Fix(dim, coord) => view.fix(&names[dim % count], coord.min(sizes[dim % count] - 1)),
        Step::Split(dim, minor) => {
            let parts = [
                (format!("s{fresh}"), sizes[dim % count] / minor),
                (format!("t{fresh}"), minor),
            ];
            view.split(&names[dim % count], parts)
        }
        Step::Flatten(major, minor) => view.flatten(
            [&names[major % count], &names[minor % count]],
            format!("f{fresh}"),
        ),
        Step::Rotate(by) => {
            let mut rotated = names;
            rotated.rotate_left(by % count);
            view.reorder(rotated)
        }
    }
}

/// Whether the step can be asked for.
fn makes_sense(sizes: &[usize], step: &Step) -> bool {
    let count = sizes.len();
    match *step {
        _ if count == 0 => false,
        Step::Split(dim, minor) => sizes[dim % count].is_multiple_of(minor),
        Step::Flatten(major, minor) => major % count != minor % count,
        _ => true,
    }
}

proptest! {
    #[test]
    fn views_match_lists_of_ranks(
        shape in proptest::collection::vec(1_usize..5, 1..4),
        steps in proptest::collection::vec(any_step(), 0..6),
    ) {
        let mesh = mesh(&shape);
        let mut view = mesh.submesh();
        let mut listed = Listed { sizes: shape, ranks: (0..mesh.size()).collect() };
        for (fresh, next) in steps.iter().enumerate() {
            if !makes_sense(&listed.sizes, next) {
                continue;
            }
            match step(view.clone(), next, fresh) {
                Ok(next_view) => view = next_view,
                Err(Error::NotStrided { .. }) => continue,
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
            listed = listed.step(next);
            prop_assert!(view.shape().shape().eq(listed.sizes.iter().copied()));
            prop_assert_eq!(&ranks(&view), &listed.ranks, "{:?}", next);
        }
        for rank in 0..=mesh.size() {
            let expected = listed.ranks.iter().position(|&other| other == rank).map(MeshRank::new);
            prop_assert_eq!(view.rank_of(MeshRank::new(rank)), expected);
        }
    }
}
