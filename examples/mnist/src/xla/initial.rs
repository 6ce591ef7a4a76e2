//! The first values that candle's network has, in the order of axes of this one.

use meshwork_dtensor::CnnSizes;
use ndarray::ArrayD;

use crate::initial::initial_values;

/// The values of all weights, in the order of [`CnnSizes::shapes`].
pub(super) fn values(sizes: &CnnSizes, seed: u64) -> Vec<ArrayD<f32>> {
    let shapes = sizes.shapes();
    let [_, _, second, _, hidden, ..] = &shapes;
    let channels = second[3];
    // What the matrix behind the convolutions has in one axis is places and channels, the other way
    // round in candle.
    let apart = vec![hidden[0] / channels, channels, hidden[1]];
    let layers: [(&str, &[usize], &[usize]); 4] = [
        ("conv1", &shapes[0], FILTER),
        ("conv2", second, FILTER),
        ("hidden", &apart, &[2, 1, 0]),
        ("output", &shapes[6], &[1, 0]),
    ];
    let mut values = Vec::new();
    for ((name, sizes, axes), shape) in layers.into_iter().zip(shapes.chunks_exact(2)) {
        let weight = seeded(&format!("{name}.weight"), sizes, axes, seed);
        let weight = weight.as_standard_layout().into_owned();
        values.push(weight.into_shape_with_order(&shape[0][..]).expect(AS_MANY));
        values.push(seeded(&format!("{name}.bias"), &shape[1], &[0], seed));
    }
    values
}

/// Values by the name and the shape that candle has for them; `axes` says which of its axes each of
/// ours is.
fn seeded(name: &str, shape: &[usize], axes: &[usize], seed: u64) -> ArrayD<f32> {
    let mut theirs = vec![0; shape.len()];
    for (size, axis) in shape.iter().zip(axes) {
        theirs[*axis] = *size;
    }
    let values = initial_values(name, &theirs, seed);
    let values = ArrayD::from_shape_vec(theirs, values).expect(AS_MANY);
    values.permuted_axes(axes)
}

/// candle's filters are by outputs, inputs, rows and columns.
const FILTER: &[usize] = &[2, 3, 1, 0];

const AS_MANY: &str = "as many values as the shape says";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_weight_has_the_value_of_candles_and_biases_are_zero() {
        let sizes = CnnSizes {
            rows: 16,
            columns: 20,
            channels: 3,
            classes: 10,
        };
        let values = values(&sizes, 7);
        let shapes = values.iter().map(|own| own.shape().to_vec());
        assert_eq!(shapes.collect::<Vec<_>>(), sizes.shapes());
        let filter = initial_values("conv1.weight", &[8, 3, 5, 5], 7);
        // Row 1, column 4, channel 2, output 6.
        assert_eq!(
            values[0][[1, 4, 2, 6]],
            filter[((6 * 3 + 2) * 5 + 1) * 5 + 4]
        );
        let hidden = initial_values("hidden.weight", &[48, 24 * 20], 7);
        // Of 4 by 5 places the last, channel 9, output 3.
        assert_eq!(values[4][[19 * 24 + 9, 3]], hidden[3 * 480 + 9 * 20 + 19]);
        let output = initial_values("output.weight", &[10, 48], 7);
        assert_eq!(values[6][[5, 2]], output[2 * 48 + 5]);
        assert!(
            values
                .iter()
                .skip(1)
                .step_by(2)
                .all(|bias| bias.iter().all(|x| *x == 0.0))
        );
    }
}
