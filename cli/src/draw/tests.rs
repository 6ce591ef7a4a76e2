//! Pictures of meshes and tensors: text renderings compared character by character, and SVG parsed
//! as XML, with all labels present and everything inside the view box.

use meshwork_layout::{Layout, PartialReduction};
use proptest::prelude::*;
use roxmltree::Document;

use super::*;

fn mesh(dims: &[(&str, usize)]) -> Mesh {
    Mesh::new(dims.iter().copied()).unwrap()
}

fn tensor(dims: &[(&str, usize)], specs: &str, shape: &[usize]) -> Picture {
    let layout = Layout::from_specs(specs, &mesh(dims)).unwrap();
    Picture::of_tensor(&layout, shape).unwrap()
}

#[track_caller]
fn check(picture: &Picture, text: &str) {
    let expected = text.strip_prefix('\n').unwrap();
    let found = picture.to_text();
    assert_eq!(found, expected, "\n{found}");
}

const GRID: &[(&str, usize)] = &[("x", 2), ("y", 4)];

#[test]
fn a_mesh_is_a_grid_of_its_ranks() {
    check(
        &Picture::of_mesh(&mesh(GRID)).unwrap(),
        "
mesh x=2, y=4: 8 ranks

      y=0   y=1   y=2   y=3
    ┌─────┬─────┬─────┬─────┐
x=0 │  0  │  1  │  2  │  3  │
    ├─────┼─────┼─────┼─────┤
x=1 │  4  │  5  │  6  │  7  │
    └─────┴─────┴─────┴─────┘
",
    );
}

#[test]
fn a_mesh_of_three_dimensions_is_a_grid_for_each_major_coordinate() {
    check(
        &Picture::of_mesh(&mesh(&[("x", 2), ("y", 1), ("z", 2)])).unwrap(),
        "
mesh x=2, y=1, z=2: 4 ranks

x=0
      z=0   z=1
    ┌─────┬─────┐
y=0 │  0  │  1  │
    └─────┴─────┘

x=1
      z=0   z=1
    ┌─────┬─────┐
y=0 │  2  │  3  │
    └─────┴─────┘
",
    );
}

#[test]
fn a_mesh_of_fewer_dimensions_is_a_row_or_a_cell() {
    check(
        &Picture::of_mesh(&mesh(&[("batch", 3)])).unwrap(),
        "
mesh batch=3: 3 ranks

  batch=0   batch=1   batch=2
┌─────────┬─────────┬─────────┐
│    0    │    1    │    2    │
└─────────┴─────────┴─────────┘
",
    );
    check(
        &Picture::of_mesh(&mesh(&[])).unwrap(),
        "
mesh without dimensions: 1 rank

┌───┐
│ 0 │
└───┘
",
    );
}

#[test]
fn a_matrix_is_cut_into_the_parts_that_ranks_hold() {
    check(
        &tensor(GRID, "x,unsharded", &[8, 6]),
        "
tensor 8×6 as x,unsharded on the mesh x=2, y=4, by ranks

       0..6
     ┌──────┐
0..4 │ 0-3  │
     ├──────┤
4..8 │ 4-7  │
     └──────┘
",
    );
    check(
        &tensor(GRID, "y,x", &[10, 6]),
        "
tensor 10×6 as y,x on the mesh x=2, y=4, by ranks

        0..3   3..6
      ┌──────┬──────┐
 0..3 │  0   │  4   │
      ├──────┼──────┤
 3..6 │  1   │  5   │
      ├──────┼──────┤
 6..9 │  2   │  6   │
      ├──────┼──────┤
9..10 │  3   │  7   │
      └──────┴──────┘
",
    );
}

#[test]
fn ranks_without_a_part_are_counted() {
    check(
        &tensor(GRID, "y|x", &[5]),
        "
tensor 5 as y|x on the mesh x=2, y=4, by ranks

  0..1   1..2   2..3   3..4   4..5
┌──────┬──────┬──────┬──────┬──────┐
│  0   │  4   │  1   │  5   │  2   │
└──────┴──────┴──────┴──────┴──────┘

3 of 8 ranks hold nothing
",
    );
    check(
        &tensor(GRID, "x,y", &[0, 5]),
        "
tensor 0×5 as x,y on the mesh x=2, y=4, by ranks

8 of 8 ranks hold nothing
",
    );
}

#[test]
fn partial_elements_say_what_they_are_made_of() {
    let whole = Layout::replicated(&mesh(GRID), 0);
    let loss = whole.with_partial(["x"], PartialReduction::Sum).unwrap();
    check(
        &Picture::of_tensor(&loss, &[]).unwrap(),
        "
scalar on the mesh x=2, y=4, by ranks

┌─────┐
│ 0-7 │
└─────┘

each element is the sum of 2 terms along x
",
    );
}

#[test]
fn a_tensor_of_three_dimensions_is_a_grid_for_each_major_part() {
    check(
        &tensor(GRID, "x,unsharded,unsharded", &[3, 2, 2]),
        "
tensor 3×2×2 as x,unsharded,unsharded on the mesh x=2, y=4, by ranks

[0..2, :, :]
       0..2
     ┌──────┐
0..2 │ 0-3  │
     └──────┘

[2..3, :, :]
       0..2
     ┌──────┐
0..2 │ 4-7  │
     └──────┘
",
    );
}

#[test]
fn many_separate_ranks_are_cut_short() {
    let picture = tensor(&[("x", 12), ("y", 2)], "y", &[2]);
    let text = picture.to_text();
    assert!(text.contains("│ 0, 2, 4, 6, … (12 ranks) │"), "{text}");
}

#[test]
fn what_nobody_could_read_is_refused() {
    let wide = mesh(&[("x", 5000)]);
    let cells = DrawError::TooManyCells {
        cells: 5000,
        most: 4096,
    };
    assert_eq!(Picture::of_mesh(&wide), Err(cells.clone()));
    let layout = Layout::from_specs("x", &wide).unwrap();
    assert_eq!(Picture::of_tensor(&layout, &[5000]), Err(cells));
    let vast = Layout::replicated(&mesh(&[("x", usize::MAX / 2)]), 1);
    let error = Picture::of_tensor(&vast, &[1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a mesh of 9223372036854775807 ranks is too large to draw: draw one of at most 1048576"
    );
}

#[test]
fn a_shape_has_the_rank_of_the_layout() {
    let layout = Layout::from_specs("x,y", &mesh(GRID)).unwrap();
    for shape in [[].as_slice(), &[0], &[4], &[4, 4, 4]] {
        let error = Picture::of_tensor(&layout, shape).unwrap_err();
        let mismatch = meshwork_layout::Error::RankMismatch {
            found: shape.to_vec(),
            expected: 2,
        };
        assert_eq!(error, DrawError::Layout(mismatch));
    }
}

#[test]
fn names_are_escaped_in_svg() {
    let picture = Picture::of_mesh(&mesh(&[("<&>", 2)])).unwrap();
    let svg = picture.to_svg();
    let document = Document::parse(&svg).unwrap();
    let texts: Vec<_> = document
        .descendants()
        .filter_map(|node| node.text())
        .collect();
    assert!(
        texts.contains(&"<&>=0") && texts.contains(&"<&>=1"),
        "{svg}"
    );
}

/// Every label of the picture is in the document once for each time it is in the picture, and all
/// that is drawn lies inside.
#[track_caller]
fn check_svg(picture: &Picture) {
    let svg = picture.to_svg();
    let document = Document::parse(&svg).unwrap();
    let root = document.root_element();
    let number = |node: &roxmltree::Node<'_, '_>, name| {
        let value = node.attribute(name).unwrap_or("0");
        value.parse::<usize>().unwrap()
    };
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    let nodes = |tag| {
        let nodes = root.descendants();
        nodes.filter(move |node| node.has_tag_name(("http://www.w3.org/2000/svg", tag)))
    };
    let mut expected = vec![picture.title.as_str()];
    expected.extend(picture.notes.iter().map(String::as_str));
    for panel in &picture.panels {
        expected.push(&panel.title);
        let bands = panel.rows.iter().chain(&panel.columns);
        expected.extend(bands.map(|band| band.label.as_str()));
        expected.extend(panel.cells.iter().map(|cell| cell.label.as_str()));
    }
    expected.retain(|label| !label.is_empty());
    let mut found: Vec<_> = nodes("text").filter_map(|node| node.text()).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{svg}");
    let cells: usize = picture.panels.iter().map(|panel| panel.cells.len()).sum();
    assert_eq!(nodes("rect").count(), cells + 1);
    for node in nodes("rect").chain(nodes("text")) {
        assert!(
            number(&node, "x") + number(&node, "width") <= width,
            "{svg}"
        );
        assert!(
            number(&node, "y") + number(&node, "height") <= height,
            "{svg}"
        );
    }
}

proptest! {
    #[test]
    fn svg_is_well_formed_and_says_what_the_picture_says(
        sizes in proptest::collection::vec(1_usize..4, 0..4),
        shape in proptest::collection::vec(0_usize..10, 3),
    ) {
        let names = ["x", "y", "z"];
        let mesh = Mesh::new(names.into_iter().zip(sizes.iter().copied())).unwrap();
        check_svg(&Picture::of_mesh(&mesh).unwrap());
        let specs = &names[..sizes.len().min(3)];
        let layout = Layout::from_names(specs, &mesh).unwrap();
        check_svg(&Picture::of_tensor(&layout, &shape[..specs.len()]).unwrap());
    }
}
