//! Arithmetic on `f32`, against the same in `f64` on the host, and shorter floats that are scaled.

use half::{bf16, f16};

use super::bench::Bench;
use super::violation::{Found, Violation, equal, refused};
use crate::{
    Element, ElementType, Elementwise, Error, Matmul, Pairwise, Pointwise, ProductShape,
    convert_slice,
};

pub(super) fn elementwise<A: Elementwise>(bench: Bench<'_, A>) -> Result<(), Violation> {
    for op in Pointwise::ALL {
        let case = format!("{op}, device {}", bench.device);
        let of = |found: Found| found.of("each element is replaced by the op of it", case);
        pointwise(bench, op).map_err(of)?;
    }
    for op in Pairwise::ALL {
        let case = format!("{op}, device {}", bench.device);
        let of = |found: Found| found.of("elements at one place are combined", case);
        pairwise(bench, op).map_err(of)?;
    }
    let of = |found: Found| found.of("each element is multiplied by a number", String::new());
    let found = scaled(bench);
    let found = found.and_then(|()| short_scaled::<A, f16>(bench));
    let found = found.and_then(|()| short_scaled::<A, bf16>(bench));
    found.map_err(of)?;
    let of = |found: Found| found.of("arithmetic refuses what does not fit", String::new());
    arithmetic_refusals(bench).map_err(of)
}

pub(super) fn matmul<A: Matmul>(bench: Bench<'_, A>) -> Result<(), Violation> {
    for sizes in SIZES {
        let [rows, inner, columns] = sizes;
        let case = format!("{rows} by {inner} by {columns}, device {}", bench.device);
        let of = |found: Found| found.of("matrices are multiplied", case);
        let shape = ProductShape::new(rows, inner, columns).map_err(Found::from);
        shape.and_then(|shape| product(bench, shape)).map_err(of)?;
    }
    for sizes in [[2, 3, 4], [5, 7, 1]] {
        let [rows, inner, columns] = sizes;
        let case = format!(
            "3 of {rows} by {inner} by {columns}, device {}",
            bench.device
        );
        let of = |found: Found| found.of("stacks of matrices are multiplied", case);
        let shape = ProductShape::stacked(3, sizes).map_err(Found::from);
        shape.and_then(|shape| product(bench, shape)).map_err(of)?;
    }
    let of = |found: Found| found.of("products refuse what does not fit", String::new());
    product_refusals(bench).map_err(of)
}

/// Nothing, one, a vector on either side, odd, and larger than blocks are.
const SIZES: [[usize; 3]; 10] = [
    [0, 3, 2],
    [2, 3, 0],
    [2, 0, 3],
    [1, 1, 1],
    [1, 7, 5],
    [5, 7, 1],
    [3, 4, 5],
    [17, 17, 17],
    [33, 17, 65],
    [70, 130, 90],
];

fn pointwise<A: Elementwise>(bench: Bench<'_, A>, op: Pointwise) -> Result<(), Found> {
    for len in [0, 1, 1000, 65_537] {
        let signed = (0..len).map(|at| (at % 401) as f32 * 0.125 - 25.0);
        let values: Vec<f32> = match op {
            Pointwise::Ln => signed.map(|value| value.abs() + 0.125).collect(),
            _ => signed.collect(),
        };
        let expected = values.iter().map(|value| match op {
            Pointwise::Negate => -f64::from(*value),
            Pointwise::Relu => f64::from(*value).max(0.0),
            Pointwise::Exp => f64::from(*value).exp(),
            Pointwise::Ln => f64::from(*value).ln(),
        });
        let mut buffer = bench.with(&values)?;
        bench.accelerator.pointwise(op, &mut buffer)?;
        near(&bench.read(&buffer)?, expected)?;
    }
    Ok(())
}

/// Products of two `f32`, which have one right rounding.
fn scaled<A: Elementwise>(bench: Bench<'_, A>) -> Result<(), Found> {
    for len in [0, 1, 1000, 65_537] {
        let values: Vec<f32> = (0..len).map(|at| (at % 401) as f32 * 0.1 - 20.0).collect();
        let expected: Vec<f32> = values.iter().map(|value| value * 0.3).collect();
        let mut buffer = bench.with(&values)?;
        bench.accelerator.scale(&mut buffer, 0.3)?;
        bench.holds(&buffer, &expected)?;
    }
    Ok(())
}

/// By numbers that 16-bit floats do not have, though they have products of them. Not every backend
/// computes with such floats.
fn short_scaled<A: Elementwise, T: Element>(bench: Bench<'_, A>) -> Result<(), Found> {
    for (by, wide) in [
        (70_000.0, [0.0_f32, 0.5, 3.0]),
        (1e-8, [0.0, 30_000.0, -60_000.0]),
    ] {
        let (mut values, mut expected) = ([T::default(); 3], [T::default(); 3]);
        let mut factors = wide;
        convert_slice(&wide, &mut values)?;
        convert_slice(&values, &mut factors)?;
        convert_slice(&factors.map(|factor| factor * by), &mut expected)?;
        let mut buffer = bench.with(&values)?;
        match bench.accelerator.scale(&mut buffer, by) {
            Err(Error::UnsupportedElement { .. } | Error::Unsupported { .. }) => return Ok(()),
            scaled => scaled?,
        }
        bench.holds(&buffer, &expected)?;
    }
    Ok(())
}

fn pairwise<A: Elementwise>(bench: Bench<'_, A>, op: Pairwise) -> Result<(), Found> {
    for len in [0, 1, 1000, 65_537] {
        let left: Vec<f32> = (0..len)
            .map(|at| (at % 401) as f32 * 0.125 - 25.0)
            .collect();
        let right: Vec<f32> = (0..len).map(|at| (at % 97) as f32 + 1.0).collect();
        let pairs = left.iter().zip(&right);
        let pairs = pairs.map(|(left, right)| (f64::from(*left), f64::from(*right)));
        let expected = pairs.map(|(left, right)| match op {
            Pairwise::Add => left + right,
            Pairwise::Subtract => left - right,
            Pairwise::Multiply => left * right,
            Pairwise::Divide => left / right,
        });
        let (mut into, by) = (bench.with(&left)?, bench.with(&right)?);
        bench.accelerator.pairwise(op, &mut into, &by)?;
        near(&bench.read(&into)?, expected)?;
        bench.holds(&by, &right)?;
    }
    Ok(())
}

/// Small whole numbers, whose products and sums are exact in any order.
fn product<A: Matmul>(bench: Bench<'_, A>, shape: ProductShape) -> Result<(), Found> {
    let (rows, inner, columns) = (shape.rows(), shape.inner(), shape.columns());
    let left: Vec<f32> = (0..shape.left())
        .map(|at| (at * 7 % 11) as f32 - 5.0)
        .collect();
    let right: Vec<f32> = (0..shape.right())
        .map(|at| (at * 5 % 13) as f32 - 6.0)
        .collect();
    let mut expected = vec![0.0_f32; shape.product()];
    for (at, expected) in expected.iter_mut().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let right = &right[row / rows * inner * columns..];
        let terms = (0..inner).map(|k| left[row * inner + k] * right[k * columns + column]);
        *expected = terms.sum::<f32>() + 0.0;
    }
    let (a, b) = (bench.with(&left)?, bench.with(&right)?);
    // What was there before does not count, not even if it is no number.
    let mut into = bench.with(&vec![f32::NAN; shape.product()])?;
    bench.accelerator.matmul(shape, &a, &b, &mut into)?;
    near(&bench.read(&into)?, expected.into_iter().map(f64::from))?;
    bench.holds(&a, &left)?;
    bench.holds(&b, &right)
}

fn arithmetic_refusals<A: Elementwise>(bench: Bench<'_, A>) -> Result<(), Found> {
    let accelerator = bench.accelerator;
    let (mut two, three) = (bench.with(&[1.0_f32; 2])?, bench.with(&[1.0_f32; 3])?);
    let lengths = Error::LengthMismatch { left: 2, right: 3 };
    refused(
        accelerator.pairwise(Pairwise::Add, &mut two, &three),
        &lengths,
    )?;
    let mut whole = bench.with(&[1_i32; 2])?;
    let element = ElementType::I32;
    let types = Error::ElementMismatch {
        buffer: ElementType::F32,
        other: element,
    };
    refused(
        accelerator.pairwise(Pairwise::Add, &mut two, &whole),
        &types,
    )?;
    let unsupported = Error::UnsupportedElement { element };
    refused(
        accelerator.pointwise(Pointwise::Negate, &mut whole),
        &unsupported,
    )?;
    equal(
        "that it computes with i32",
        accelerator.computes(element),
        false,
    )?;
    let float = accelerator.computes(ElementType::F32);
    equal("that it computes with f32", float, true)?;
    for other in bench.others() {
        let far = other.with(&[1.0_f32; 2])?;
        let devices = Error::DeviceMismatch {
            left: bench.device,
            right: other.device,
        };
        refused(
            accelerator.pairwise(Pairwise::Add, &mut two, &far),
            &devices,
        )?;
    }
    bench.holds(&two, &[1.0_f32; 2])
}

fn product_refusals<A: Matmul>(bench: Bench<'_, A>) -> Result<(), Found> {
    let accelerator = bench.accelerator;
    let shape = ProductShape::new(1, 2, 1)?;
    let (two, three) = (bench.with(&[1.0_f32; 2])?, bench.with(&[1.0_f32; 3])?);
    let mut one = bench.with(&[5.0_f32])?;
    let lengths = Error::LengthMismatch { left: 3, right: 2 };
    refused(accelerator.matmul(shape, &three, &two, &mut one), &lengths)?;
    refused(accelerator.matmul(shape, &two, &three, &mut one), &lengths)?;
    let whole = bench.with(&[1_i32; 2])?;
    let types = Error::ElementMismatch {
        buffer: ElementType::F32,
        other: ElementType::I32,
    };
    refused(accelerator.matmul(shape, &whole, &two, &mut one), &types)?;
    bench.holds(&one, &[5.0_f32])
}

/// That all values are those expected but for a few of the last places.
fn near(found: &[f32], expected: impl Iterator<Item = f64>) -> Result<(), Found> {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let apart = (f64::from(*found) - expected).abs();
        if apart.is_nan() || apart > expected.abs() * 2e-6 {
            return Err(Found::new(format!(
                "element {at} is {found}, not {expected}"
            )));
        }
    }
    Ok(())
}
