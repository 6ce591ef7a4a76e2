//! Index arithmetic of the strided copy and permute kernels, checked without a GPU: every shape of
//! up to three axes of up to three elements, against offsets computed index by index.

use std::num::NonZeroIsize;
use std::ops::Range;

use meshwork_accel::{ElementType, StridedRange};

use super::*;

/// The places of all elements, by indices along all axes.
fn places_of(axes: &Axes) -> Vec<[usize; 2]> {
    let count = axes.count();
    let place = |mut at: usize| {
        let mut place = axes.first();
        place[0] += axes.start();
        for axis in axes.axes().iter().rev() {
            let index = at % axis.size;
            at /= axis.size;
            place =
                [0, 1].map(|side| place[side].wrapping_add(index.wrapping_mul(axis.apart[side])));
        }
        place
    };
    (0..count).map(place).collect()
}

/// All sizes of up to three axes of up to three elements.
fn shapes() -> impl Iterator<Item = Vec<usize>> {
    (0..4_u32).flat_map(|axes| {
        (0..3_usize.pow(axes)).map(move |mut code| {
            (0..axes)
                .map(|_| {
                    let size = 1 + code % 3;
                    code /= 3;
                    size
                })
                .collect()
        })
    })
}

/// All boxes of a whole that are not empty.
fn boxes(whole: &[usize]) -> Vec<Vec<Range<usize>>> {
    let mut all = vec![Vec::new()];
    for &size in whole {
        let ranges = (0..size).flat_map(|start| (start + 1..=size).map(move |end| start..end));
        let ranges: Vec<_> = ranges.collect();
        all = all
            .iter()
            .flat_map(|part: &Vec<Range<usize>>| {
                ranges.iter().map(|range| {
                    let mut part = part.clone();
                    part.push(range.clone());
                    part
                })
            })
            .collect();
    }
    all
}

/// The index along each axis of the element at a place.
fn index(sizes: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; sizes.len()];
    for (axis, size) in sizes.iter().enumerate().rev() {
        index[axis] = at % size;
        at /= size;
    }
    index
}

#[test]
fn boxes_are_cut_and_pasted_at_the_places_of_their_indices() {
    for whole in shapes() {
        for part in boxes(&whole) {
            let region = Region::new(&whole, &part).unwrap();
            let inside = |at: &usize| {
                let index = index(&whole, *at);
                part.iter()
                    .zip(index)
                    .all(|(range, at)| range.contains(&at))
            };
            let chosen = (0..region.whole_len()).filter(inside);
            let expected: Vec<_> = chosen.enumerate().map(|(to, from)| [from, to]).collect();
            let cut = Axes::cut(&region).unwrap();
            assert_eq!(places_of(&cut), expected, "{region:?}");
            let paste = Axes::paste(&region).unwrap();
            let back: Vec<_> = expected.iter().map(|[from, to]| [*to, *from]).collect();
            assert_eq!(places_of(&paste), back, "{region:?}");
        }
    }
}

/// All indices at equal distances, in either direction, of an axis of this size.
fn strides(size: usize) -> Vec<StridedRange> {
    let firsts = (0..size).flat_map(|first| (1..=size).map(move |count| (first, count)));
    let all = firsts.flat_map(|(first, count)| {
        [-2, -1, 1, 2].map(|step| StridedRange {
            first,
            step: NonZeroIsize::new(step).unwrap(),
            count,
        })
    });
    all.filter(|stride| StridedSlice::new(&[size], &[*stride]).is_ok())
        .collect()
}

#[test]
fn steps_are_taken_in_either_direction_and_within_their_reach() {
    for whole in [vec![5], vec![4, 4], vec![2, 3, 4]] {
        let mut choices: Vec<Vec<StridedRange>> = vec![Vec::new()];
        for &size in &whole {
            let longer = choices.iter().flat_map(|along| {
                let along = along.clone();
                let strides = strides(size).into_iter();
                strides.map(move |stride| [&along[..], &[stride]].concat())
            });
            choices = longer.collect();
        }
        for along in choices {
            let by = StridedSlice::new(&whole, &along).unwrap();
            let sizes: Vec<_> = along.iter().map(|stride| stride.count).collect();
            let source = |at: usize| {
                let chosen = index(&sizes, at).into_iter().zip(&along).zip(&whole);
                chosen.fold(0, |found, ((index, stride), size)| {
                    let way = index.cast_signed() * stride.step.get();
                    found * size + stride.first.checked_add_signed(way).unwrap()
                })
            };
            let expected: Vec<_> = (0..by.len()).map(|at| [source(at), at]).collect();
            let axes = Axes::step(&by).unwrap();
            assert_eq!(places_of(&axes), expected, "{by:?}");
            let (first, reach) = (axes.first(), axes.reach());
            let sources = || expected.iter().map(|[from, _]| *from);
            let ends = (sources().min().unwrap(), sources().max().unwrap());
            assert_eq!((first[0], first[0] + reach[0] - 1), ends, "{by:?}");
        }
    }
}

#[test]
fn arrangements_take_each_element_from_where_its_index_points() {
    let orders: [&[usize]; 6] = [
        &[0, 1, 2],
        &[0, 2, 1],
        &[1, 0, 2],
        &[1, 2, 0],
        &[2, 0, 1],
        &[2, 1, 0],
    ];
    for from in shapes().filter(|sizes| sizes.len() == 3) {
        for order in orders {
            // A fourth axis between, along which all is repeated, as along those of one element.
            let mut to = vec![2; 4];
            let place = |axis: usize| axis + usize::from(axis > 1);
            for (size, axis) in from.iter().zip(order) {
                to[place(*axis)] = if *size == 1 { 4 } else { *size };
            }
            let moved: Vec<_> = order.iter().map(|axis| place(*axis)).collect();
            let arrangement = Arrangement::new(&from, &moved, &to).unwrap();
            let source = |at: usize| {
                let index = index(&to, at);
                from.iter().zip(&moved).fold(0, |found, (size, place)| {
                    found * size + if *size == 1 { 0 } else { index[*place] }
                })
            };
            let expected: Vec<_> = (0..arrangement.len()).map(|at| [source(at), at]).collect();
            let axes = Axes::arrange(&arrangement).unwrap();
            assert_eq!(places_of(&axes), expected, "{arrangement:?}");
        }
    }
}

#[test]
fn wider_elements_are_the_same_bytes() {
    for whole in [vec![6, 8], vec![4, 6, 16], vec![48], vec![5, 3]] {
        for part in boxes(&whole) {
            let narrow = Axes::cut(&Region::new(&whole, &part).unwrap()).unwrap();
            for element in [ElementType::U8, ElementType::F16, ElementType::F64] {
                let (wide, width) = narrow.clone().widened(Width::of(element), 16);
                let bytes = |axes: &Axes, size: usize| {
                    let mut all: Vec<_> = places_of(axes)
                        .into_iter()
                        .flat_map(|[from, to]| {
                            (0..size).map(move |byte| [from * size + byte, to * size + byte])
                        })
                        .collect();
                    all.sort_unstable();
                    all
                };
                assert_eq!(
                    bytes(&wide, width.bytes()),
                    bytes(&narrow, element.size()),
                    "{whole:?} {part:?}"
                );
            }
        }
    }
}

#[test]
fn rows_of_sixteen_bytes_move_at_once_and_rows_between_others_that_are_odd_do_not() {
    let width = |whole: &[usize], part: &[Range<usize>], aligned| {
        let axes = Axes::cut(&Region::new(whole, part).unwrap()).unwrap();
        axes.widened(Width::Four, aligned).1
    };
    assert_eq!(width(&[8, 16], &[0..8, 4..8], 256), Width::Sixteen);
    assert_eq!(width(&[8, 16], &[0..8, 2..6], 256), Width::Eight);
    assert_eq!(width(&[8, 15], &[0..8, 4..8], 256), Width::Four);
    assert_eq!(width(&[8, 16], &[0..8, 4..5], 256), Width::Four);
    // What another library lends may begin anywhere.
    assert_eq!(width(&[8, 16], &[0..8, 4..8], 8), Width::Eight);
    assert_eq!(width(&[8, 16], &[0..8, 4..8], 4), Width::Four);
}

#[test]
fn what_lies_together_is_one_piece_and_reaches_as_far_as_it_is_long() {
    let rows = Axes::cut(&Region::new(&[4, 2, 3], &[1..3, 0..2, 0..3]).unwrap()).unwrap();
    assert!(rows.is_one_piece());
    assert_eq!((rows.first(), rows.reach()), ([6, 0], [12, 12]));
    let columns = Axes::cut(&Region::new(&[4, 3], &[0..4, 1..2]).unwrap()).unwrap();
    assert!(!columns.is_one_piece());
    assert_eq!((columns.first(), columns.reach()), ([1, 0], [10, 4]));
    let one = Axes::cut(&Region::new(&[4, 3], &[2..3, 1..2]).unwrap()).unwrap();
    assert!(one.is_one_piece());
    assert_eq!((one.count(), one.reach()), (1, [1, 1]));
}

#[test]
fn more_axes_than_a_kernel_walks_along_are_refused_unless_they_are_one() {
    let sizes = [2; 17];
    let same: Vec<usize> = (0..17).collect();
    let reversed: Vec<usize> = (0..17).rev().collect();
    let arranged =
        |places: &[usize]| Axes::arrange(&Arrangement::new(&sizes, places, &sizes).unwrap());
    assert!(arranged(&same).unwrap().is_one_piece());
    let (axes, most) = (17, MOST_AXES);
    assert_eq!(arranged(&reversed), Err(Error::TooManyAxes { axes, most }));
}

#[test]
fn axes_whose_neighbours_change_places_are_transposed_to_the_same_places() {
    let arranged = |from: &[usize], places: &[usize], to: &[usize]| {
        Axes::arrange(&Arrangement::new(from, places, to).unwrap()).unwrap()
    };
    for (from, places, to, squares) in [
        (&[40, 33][..], &[1, 0][..], &[33, 40][..], 4),
        (&[36, 2, 55], &[2, 1, 0], &[55, 2, 36], 8),
        (&[33, 40], &[2, 0], &[40, 3, 33], 12),
    ] {
        let axes = arranged(from, places, to);
        let (transposed, counted) = axes.transposed().unwrap();
        assert_eq!(counted, squares, "{axes:?}");
        let in_order = |axes: &Axes| {
            let mut places = places_of(axes);
            places.sort_unstable();
            places
        };
        assert_eq!(in_order(&transposed), in_order(&axes));
        let [.., columns, rows] = transposed.axes() else {
            panic!("{transposed:?}");
        };
        assert_eq!([columns.apart[0], rows.apart[1]], [1, 1], "{transposed:?}");
    }
    for (from, places, to) in [
        (&[40, 33][..], &[0, 1][..], &[40, 33][..]),
        (&[40, 3], &[1, 0], &[3, 40]),
        (&[3, 40], &[1, 0], &[40, 3]),
        (&[40, 40, 2], &[1, 0, 2], &[40, 40, 2]),
    ] {
        assert_eq!(arranged(from, places, to).transposed(), None, "{from:?}");
    }
}
