use std::collections::HashSet;

use super::*;

#[test]
fn every_supported_pair_has_its_kernels_and_no_name_stands_for_two() {
    let names: Vec<_> = Kernel::all().map(Kernel::name).collect();
    // 8 integer types with 7 ops, 4 float types with 4, bool with 5; 12 means, and as many
    // divisions; 4 widths. Of 4 float types 8 ops, products and scales; 5 widths of what moves in
    // two ways, one conversion, and 4 widths of what is chosen in three ways; two extremes of 12
    // types.
    let of_tensors = 4 * 8 + 2 * 4 + 2 * 5 + 1 + 3 * 4 + 2 * 12;
    assert_eq!(
        names.len(),
        4 * (8 * 7 + 4 * 4 + 5) + 2 * 12 + 4 + of_tensors
    );
    let different: HashSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len());
}

#[test]
fn ops_have_a_kernel_where_they_are_supported() {
    let all: HashSet<_> = Kernel::all().collect();
    for op in ReduceOp::ALL {
        for element in ElementType::ALL {
            let supported = op.supports(element);
            for kernel in [Kernel::reduce(op, element), Kernel::fold(op, element)] {
                assert_eq!(kernel.is_some(), supported, "{op} of {element}");
                assert!(kernel.is_none_or(|kernel| all.contains(&kernel)));
            }
        }
        assert!(
            ElementType::ALL
                .iter()
                .all(|element| all.contains(&Kernel::Fill(Width::of(*element))))
        );
    }
}

#[test]
fn kernels_know_the_bytes_of_their_elements_and_of_their_kind_only() {
    let of_reductions = |kernel: &Kernel| {
        use Kernel::{Divide, Fill, Fold, Reduce};
        matches!(kernel, Reduce(..) | Fold(..) | Divide(_) | Fill(_))
    };
    for kernel in Kernel::all().filter(of_reductions) {
        let sizes = [
            kernel.reduces(),
            kernel.folds(),
            kernel.divides(),
            kernel.fills(),
        ];
        assert_eq!(sizes.into_iter().flatten().count(), 1, "{kernel:?}");
    }
    assert_eq!(Kernel::Fill(Width::of(ElementType::F64)).fills(), Some(8));
    assert_eq!(Kernel::Divide(ElementType::Bf16).divides(), Some(2));
}

#[test]
fn a_grid_has_a_thread_for_each_turn_up_to_what_a_gpu_can_hold() {
    for count in [0, 1, 255, 256, 257, 100_000] {
        let grid = Grid::of_elements(count, 132);
        let threads = u64::from(grid.blocks()) * u64::from(grid.threads());
        assert!(
            threads >= count && threads < count + 256 + u64::from(count == 0),
            "{count}"
        );
    }
    assert_eq!(Grid::of_elements(u64::MAX, 132).blocks(), 132 * 32);
    assert_eq!(Grid::of_elements(u64::MAX, 0).blocks(), 32);
    assert_eq!(Grid::of_elements(u64::MAX, u32::MAX).blocks(), u32::MAX);
}

#[test]
fn packs_are_sixteen_bytes() {
    for (size, lanes) in [(1, 16), (2, 8), (4, 4), (8, 2)] {
        for count in [0, 1, lanes, lanes * 256, lanes * 256 + 1, lanes * 9999] {
            let packs = Grid::of_packs(count, size, 132);
            assert_eq!(packs, Grid::of_elements(count.div_ceil(lanes), 132));
        }
    }
}

#[test]
fn the_source_has_the_numbers_that_grids_and_arguments_are_made_by() {
    for line in [
        format!("#define THREADS {THREADS}"),
        format!("#define TILE {TILE}"),
        format!("#define SQUARE {SQUARE}"),
        format!("#define AXES {MOST_AXES}"),
        format!("#define PLACES {MOST_PLACES}"),
    ] {
        assert!(SOURCE.lines().any(|found| found == line), "{line}");
    }
    for element in ElementType::ALL {
        let name = element.to_string().to_uppercase();
        let line = format!("#define IS_{name} {}", element as u8);
        assert!(SOURCE.lines().any(|found| found == line), "{line}");
    }
}
