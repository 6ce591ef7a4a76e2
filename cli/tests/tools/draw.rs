//! `meshwork draw` from outside.

use super::says;

fn draw(args: &[&str]) -> (String, String, Option<i32>) {
    says("draw", args)
}

#[track_caller]
fn check_refused(args: &[&str], status: i32, why: &str) {
    let (stdout, stderr, code) = draw(args);
    assert!(stderr.contains(why), "{stderr}");
    assert_eq!((stdout.as_str(), code), ("", Some(status)));
}

#[test]
fn the_picture_of_the_readme_is_what_draw_makes() {
    let committed = include_str!("../../../docs/book/src/files/mesh.svg");
    let mesh = ["--mesh", "data=2,model=2", "--layout", "data,model"];
    let tensor = ["--shape", "6,8", "--format", "svg"];
    let (stdout, _, status) = draw(&[&mesh[..], &tensor[..]].concat());
    assert_eq!((stdout.as_str(), status), (committed, Some(0)));
}

#[test]
fn a_mesh_or_a_tensor_on_it_is_drawn() {
    let (stdout, stderr, status) = draw(&["--mesh", "x=2,y=4"]);
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    assert!(stdout.starts_with("mesh x=2, y=4: 8 ranks\n"), "{stdout}");

    let layout = [
        "--mesh",
        "x=2,y=4",
        "--layout",
        "x,unsharded",
        "--shape",
        "8,6",
    ];
    let (stdout, stderr, status) = draw(&layout);
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    assert!(stdout.contains("4..8 │ 4-7  │"), "{stdout}");
}

#[test]
fn a_scalar_has_an_empty_layout_and_shape() {
    let (stdout, stderr, _) = draw(&["--mesh", "x=2", "--layout", "", "--shape", ""]);
    assert!(
        stdout.starts_with("scalar on the mesh x=2, by ranks\n"),
        "{stderr}"
    );
}

#[test]
fn the_picture_comes_as_svg_where_asked() {
    let (stdout, stderr, status) = draw(&["--mesh", "x=2,y=4", "--format", "svg"]);
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    let document = roxmltree::Document::parse(&stdout).unwrap();
    assert!(
        document
            .root_element()
            .has_tag_name(("http://www.w3.org/2000/svg", "svg"))
    );
}

#[test]
fn wrong_arguments_are_told_what_is_right() {
    check_refused(&[], 2, "--mesh <DIMS>");
    check_refused(&["--mesh", "x"], 2, "such as x=2,y=4");
    check_refused(&["--mesh", "x=2", "--layout", "x"], 2, "--shape <SIZES>");
    check_refused(&["--mesh", "x=2", "--shape", "4"], 2, "--layout <SPECS>");
    let odd = ["--mesh", "x=2", "--layout", "x", "--shape", "4x4"];
    check_refused(&odd, 2, "\"4x4\" is no size");
    check_refused(
        &["--mesh", "x=2", "--format", "png"],
        2,
        "possible values: text, svg",
    );
}

#[test]
fn a_layout_that_does_not_fit_is_refused_by_name_and_number() {
    let refused = |layout, shape, why| {
        check_refused(
            &["--mesh", "x=2,y=4", "--layout", layout, "--shape", shape],
            1,
            why,
        );
    };
    refused(
        "q,unsharded",
        "8,6",
        "meshwork draw: mesh dimension \"q\" does not exist: the mesh has the dimensions x, y",
    );
    refused(
        "x",
        "8,6",
        "[8, 6] has the rank 2, but the layout is for tensors of rank 1",
    );
    refused(
        "x,x",
        "8,6",
        "mesh dimension x cuts tensor dimension 0 and again",
    );
}
