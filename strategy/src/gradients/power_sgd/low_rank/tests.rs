//! Workers' matrices in one process, against sums that are formed whole.

use proptest::prelude::*;

use super::*;

fn rank(rank: usize) -> NonZeroUsize {
    NonZeroUsize::new(rank).unwrap()
}

/// A step of all workers: what each of them then takes for the sum of all gradients.
fn step(workers: &mut [LowRank], gradients: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let sum = |messages: Vec<Vec<f32>>| -> Vec<f32> {
        let at = |at: usize| messages.iter().map(|one| one[at]).sum();
        (0..messages[0].len()).map(at).collect()
    };
    let mut told = gradients.to_vec();
    let each = workers.iter_mut().zip(&mut told);
    let first = each.map(|(worker, gradient)| {
        let mut message = Vec::new();
        worker.project(gradient, &mut message);
        message
    });
    let first = sum(first.collect());
    let each = workers.iter_mut().zip(&mut told);
    let second = each.map(|(worker, gradient)| {
        let mut message = Vec::new();
        let rest = worker.project_back(&first, gradient, &mut message);
        assert!(rest.is_empty());
        message
    });
    let second = sum(second.collect());
    for (worker, gradient) in workers.iter_mut().zip(&mut told) {
        assert!(worker.expand(&second, gradient).is_empty());
    }
    told
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn total(matrices: &[Vec<f32>]) -> Vec<f64> {
    let at = |at: usize| matrices.iter().map(|one| f64::from(one[at])).sum();
    (0..matrices[0].len()).map(at).collect()
}

fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(f64::abs).fold(0.0, f64::max)
}

/// Rows, columns, and matrices of this many products for so many workers.
fn products(workers: usize, most: usize) -> impl Strategy<Value = (usize, usize, Vec<Vec<f32>>)> {
    (2_usize..9, 2_usize..20).prop_flat_map(move |(rows, columns)| {
        let factors = prop::collection::vec(-1.0_f32..1.0, most * (rows + workers * columns));
        factors.prop_map(move |factors| {
            // All workers' rows are of one space, as those of a sum of rank r have to be.
            let (left, rights) = factors.split_at(most * rows);
            let matrix = |right: &[f32]| {
                let mut matrix = vec![0.0; rows * columns];
                add_product(&mut matrix, columns, [left, right], 1.0);
                matrix
            };
            let rights = rights.chunks_exact(most * columns);
            (rows, columns, rights.map(matrix).collect())
        })
    })
}

proptest! {
    #[test]
    fn sums_of_rank_r_are_exact_and_all_workers_have_equal_bits(
        (rows, columns, gradients) in products(3, 2), more in 0_usize..2,
    ) {
        let one = LowRank::new(rows, columns, rank(2 + more), 5);
        let mut workers = vec![one; 3];
        let expected = total(&gradients);
        let size = largest(expected.iter().copied()).max(1e-3);
        for _ in 0..3 {
            let told = step(&mut workers, &gradients);
            for one in &told {
                prop_assert_eq!(bits(one), bits(&told[0]));
            }
            let off = told[0].iter().zip(&expected).map(|(one, sum)| f64::from(*one) - sum);
            let off = largest(off);
            prop_assert!(off <= 1e-3 * size, "{off} of {size}");
        }
    }

    #[test]
    fn what_is_left_out_and_what_is_told_are_all_gradients_together(
        rows in 2_usize..9, columns in 2_usize..20, seed in any::<u64>(), steps in 1_u64..12,
    ) {
        let mut workers = vec![LowRank::new(rows, columns, rank(1), 3); 4];
        let (mut told, mut given) = (vec![0.0_f64; rows * columns], vec![0.0_f64; rows * columns]);
        for number in 0..steps {
            let gradients: Vec<Vec<f32>> = (0..4)
                .map(|worker| (0..(rows * columns) as u64)
                    .map(|at| noise(seed ^ worker, number, at))
                    .collect())
                .collect();
            for (given, one) in given.iter_mut().zip(total(&gradients)) {
                *given += one;
            }
            for (told, one) in told.iter_mut().zip(&step(&mut workers, &gradients)[0]) {
                *told += f64::from(*one);
            }
        }
        let residuals: Vec<Vec<f32>> = workers.iter().map(|one| one.residual.clone()).collect();
        let left_out = total(&residuals);
        let lost = given.iter().zip(told.iter().zip(&left_out)).map(|(given, (told, left_out))| {
            given - told - left_out
        });
        let lost = largest(lost);
        prop_assert!(lost < 1e-3 * steps as f64, "{lost}");
    }

    #[test]
    fn rows_become_orthonormal_or_zero(
        rows in prop::collection::vec(-1.0_f32..1.0, 6 * 4), repeated in any::<bool>(),
    ) {
        let mut rows = rows;
        if repeated {
            rows.copy_within(0..6, 12);
        }
        orthonormalize(&mut rows, 6);
        let rows: Vec<&[f32]> = rows.chunks_exact(6).collect();
        for (at, one) in rows.iter().enumerate() {
            let length = norm(one);
            prop_assert!(length == 0.0 || (length - 1.0).abs() < 1e-5, "{length}");
            for other in &rows[..at] {
                prop_assert!(dot(one, other).abs() < 1e-3, "{}", dot(one, other));
            }
        }
        prop_assert!(!repeated || norm(rows[2]) == 0.0);
    }
}

#[test]
fn descent_by_error_feedback_converges_where_leaving_out_does_not() {
    // Each step tells rank 1 of a difference of full rank; what it leaves out is not forgotten.
    let (rows, columns) = (6, 9);
    let goals: Vec<Vec<f32>> = (0..2)
        .map(|worker| (0..54).map(|at| noise(9, worker, at)).collect())
        .collect();
    let mean: Vec<f32> = (0..54)
        .map(|at| (goals[0][at] + goals[1][at]) / 2.0)
        .collect();
    let distance = |value: &[f32]| {
        largest(
            value
                .iter()
                .zip(&mean)
                .map(|(value, mean)| f64::from(value - mean)),
        )
    };
    let mut workers = vec![LowRank::new(rows, columns, rank(1), 0); 2];
    let mut value = vec![0.0_f32; 54];
    for _ in 0..600 {
        let gradients: Vec<Vec<f32>> = goals
            .iter()
            .map(|goal| {
                value
                    .iter()
                    .zip(goal)
                    .map(|(value, goal)| value - goal)
                    .collect()
            })
            .collect();
        let told = step(&mut workers, &gradients);
        add(&mut value, &told[0], -0.05);
    }
    assert!(distance(&value) < 1e-2, "{}", distance(&value));
}

#[test]
fn nothing_and_numbers_that_are_none_do_no_harm_to_later_steps() {
    let mut workers = vec![LowRank::new(4, 5, rank(1), 1); 2];
    let zeros = vec![vec![0.0_f32; 20]; 2];
    assert_eq!(step(&mut workers, &zeros)[0], zeros[0]);
    let mut odd = zeros.clone();
    odd[1][7] = f32::NAN;
    let told = step(&mut workers, &odd);
    assert!(told.iter().flatten().any(|one| one.is_nan()), "{told:?}");
    let ones = vec![vec![1.0_f32; 20]; 2];
    for one in &step(&mut workers, &ones)[1] {
        assert!((one - 2.0).abs() < 1e-4, "{one}");
    }
}

#[test]
fn numbers_whose_products_overflow_are_never_told_as_zeros() {
    let mut overflows = 0;
    for signs in 0..32_u32 {
        let mut workers = vec![LowRank::new(4, 5, rank(1), 1); 2];
        let sign = |at: u32| match signs >> (at % 5) & 1 {
            0 => f32::MAX,
            _ => f32::MIN,
        };
        let huge = vec![(0..20).map(sign).collect::<Vec<f32>>(); 2];
        let told = step(&mut workers, &huge);
        assert!(told[0].iter().any(|one| *one != 0.0), "{signs}: {told:?}");
        if told[0].iter().all(|one| one.is_finite()) {
            continue;
        }
        overflows += 1;
        let ones = vec![vec![1.0_f32; 20]; 2];
        for one in &step(&mut workers, &ones)[1] {
            assert!((one - 2.0).abs() < 1e-4, "{one}");
        }
    }
    assert!(overflows > 0);
}
