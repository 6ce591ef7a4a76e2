//! Convolutions and pooling, by all pairs of a window and a place in it.

use meshwork_accel::{ConvolutionShape, GraphOp, ImageWindows, ReduceOp};

use super::indices;

/// The result of an op of windows; none for another op.
pub(super) fn made(op: &GraphOp, of: &[&Vec<f64>]) -> Option<Vec<f64>> {
    Some(match op {
        GraphOp::Convolution(shape) => {
            let mut sums = zeros(&shape.outputs());
            products(shape, |at| {
                sums[at.sum] += of[0][at.image] * of[1][at.filter];
            });
            sums
        }
        GraphOp::ConvolutionInputGradient(shape) => {
            let mut images = zeros(&shape.over().images());
            products(shape, |at| {
                images[at.image] += of[0][at.sum] * of[1][at.filter];
            });
            images
        }
        GraphOp::ConvolutionFilterGradient(shape) => {
            let mut filter = zeros(&shape.filter());
            products(shape, |at| {
                filter[at.filter] += of[0][at.image] * of[1][at.sum];
            });
            filter
        }
        GraphOp::Pool(by, over) => {
            let windows = windows(over);
            let one = |places: &Vec<usize>| match by {
                ReduceOp::Max => of[0][largest(of[0], places)],
                _ => places.iter().map(|at| of[0][*at]).sum::<f64>() / places.len() as f64,
            };
            windows.iter().map(one).collect()
        }
        GraphOp::PoolGradient(by, over) => {
            let mut images = zeros(&over.images());
            for (places, slope) in windows(over).iter().zip(of[1]) {
                match by {
                    ReduceOp::Max => images[largest(of[0], places)] += slope,
                    _ => {
                        let share = slope / places.len() as f64;
                        places.iter().for_each(|at| images[*at] += share);
                    }
                }
            }
            images
        }
        _ => return None,
    })
}

fn zeros(sizes: &[usize]) -> Vec<f64> {
    vec![0.0; sizes.iter().product()]
}

/// The first of the largest.
fn largest(of: &[f64], places: &[usize]) -> usize {
    let mut best = places[0];
    for at in places {
        if of[*at] > of[best] {
            best = *at;
        }
    }
    best
}

/// Where an element of a product is, and the sum that it goes into.
struct Product {
    image: usize,
    filter: usize,
    sum: usize,
}

fn products(shape: &ConvolutionShape, mut visit: impl FnMut(Product)) {
    let (filter, outputs) = (shape.filter(), shape.outputs());
    let (axes, last) = (filter.len() - 2, filter.len() - 1);
    let each = filter[last] / shape.groups();
    for output in indices(&outputs) {
        for tap in indices(&filter[..last]) {
            let group = output[axes + 1] / each;
            let channel = group * filter[axes] + tap[axes];
            let inside = inside(shape.over(), &output[1..=axes], &tap[..axes]);
            if let Some(spatial) = inside {
                let image = [&output[..1], &spatial, &[channel]].concat();
                let weight = [&tap[..], &output[axes + 1..]].concat();
                visit(Product {
                    image: place(&image, &shape.over().images()),
                    filter: place(&weight, &filter),
                    sum: place(&output, &outputs),
                });
            }
        }
    }
}

/// The places of each window that are no padding, in order.
fn windows(over: &ImageWindows) -> Vec<Vec<usize>> {
    let window: Vec<usize> = over
        .along()
        .iter()
        .map(|range| range.window.get())
        .collect();
    let axes = window.len();
    let of_one = |at: Vec<usize>| {
        let taps = indices(&window);
        let inside = taps.filter_map(|tap| inside(over, &at[1..=axes], &tap));
        let images = inside.map(|spatial| [&at[..1], &spatial, &at[axes + 1..]].concat());
        images.map(|image| place(&image, &over.images())).collect()
    };
    indices(&over.windows()).map(of_one).collect()
}

/// The spatial index of a place in a window; none for padding.
fn inside(over: &ImageWindows, window: &[usize], tap: &[usize]) -> Option<Vec<usize>> {
    let along = over.along().iter().zip(window).zip(tap);
    let along = along.map(|((range, window), tap)| {
        let at = window * range.stride.get() + tap * range.dilation.get();
        let index = at.checked_sub(range.padding[0])?;
        (index < range.size).then_some(index)
    });
    along.collect()
}

fn place(index: &[usize], sizes: &[usize]) -> usize {
    let along = index.iter().zip(sizes);
    along.fold(0, |place, (at, size)| place * size + at)
}
