//! The hash of what goes from worker to worker.

use super::*;

#[test]
fn a_bit_that_is_another_is_found() {
    let values = [0.5, f32::NAN, -0.0];
    let mut sealed = values.to_vec();
    seal(&mut sealed);
    let opened = open(&sealed).unwrap();
    let bits = |values: &[f32]| {
        values
            .iter()
            .map(|value| value.to_bits())
            .collect::<Vec<_>>()
    };
    assert_eq!(bits(opened), bits(&values));
    for bit in 0..sealed.len() * 32 {
        let mut wrong = sealed.clone();
        let word = &mut wrong[bit / 32];
        *word = f32::from_bits(word.to_bits() ^ 1 << (bit % 32));
        assert!(open(&wrong).is_none(), "bit {bit}");
    }
}
