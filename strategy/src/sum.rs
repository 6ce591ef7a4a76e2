//! Sums of the replicas' contributions, in orders that are part of the result.

use crate::Value;

/// In which order the contributions of all replicas are added, which decides the last bits of a sum
/// of floats.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SumOrder {
    /// Inside a worker in the order of its replicas, and then over workers as is fastest. All
    /// replicas get the same bits.
    #[default]
    Fastest,
    /// Piece by piece around a ring of all replicas, each piece from another replica on, as
    /// TensorFlow does: for comparing a run with one of TensorFlow bit for bit. Every worker
    /// gathers the contributions of all, so this is slow.
    TensorFlowRing,
}

/// `((x0 + x1) + x2) + …`, element by element.
pub(crate) fn in_order<T: Value>(contributions: Vec<Vec<T>>) -> Vec<T> {
    let mut contributions = contributions.into_iter();
    let mut sum = contributions.next().unwrap_or_default();
    for other in contributions {
        for (sum, other) in sum.iter_mut().zip(other) {
            *sum = sum.plus(other);
        }
    }
    sum
}

/// Piece `c` of the result is `((x_c + x_{c+1}) + …)`, around to `x_{c-1}`.
pub(crate) fn around_ring<T: Value>(contributions: &[Vec<T>]) -> Vec<T> {
    let replicas = contributions.len();
    let len = contributions.first().map_or(0, Vec::len);
    if replicas == 0 {
        return Vec::new();
    }
    let piece = piece_len(len, replicas, size_of::<T>());
    let element = |at: usize| {
        let start = at / piece;
        let added = (1..replicas).map(|turn| contributions[(start + turn) % replicas][at]);
        added.fold(contributions[start % replicas][at], T::plus)
    };
    (0..len).map(element).collect()
}

/// Elements of one piece: an equal part, rounded up to the next boundary of 64 bytes that lies
/// behind it.
fn piece_len(len: usize, replicas: usize, element: usize) -> usize {
    let bytes = len.div_ceil(replicas) * element;
    (bytes / BOUNDARY + 1) * BOUNDARY / element
}

/// Bytes to which TensorFlow aligns the pieces of its ring.
const BOUNDARY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_begins_each_piece_at_another_replica() {
        // 1e8 + 1 loses the 1, so the order shows.
        let contributions = [vec![1.0e8_f32; 40], vec![1.0; 40], vec![-1.0e8; 40]];
        let sum = around_ring(&contributions);
        // 14 elements a replica, so pieces of 16.
        assert_eq!(sum[0], (1.0e8 + 1.0) - 1.0e8);
        assert_eq!(sum[16], (1.0 - 1.0e8) + 1.0e8);
        assert_eq!(sum[39], (-1.0e8 + 1.0e8) + 1.0);
        assert_eq!(in_order(contributions.to_vec())[39], (1.0e8 + 1.0) - 1.0e8);
    }

    #[test]
    fn pieces_that_fill_their_boundary_get_another_one() {
        assert_eq!(piece_len(32, 2, 4), 32);
        assert_eq!(piece_len(30, 2, 4), 16);
        assert_eq!(piece_len(0, 2, 8), 8);
    }

    #[test]
    fn nothing_is_summed_to_nothing() {
        assert!(around_ring::<f32>(&[]).is_empty());
        assert!(around_ring(&[Vec::<i32>::new(), Vec::new()]).is_empty());
    }
}
