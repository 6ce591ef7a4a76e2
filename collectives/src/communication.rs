use crate::schedule::Algorithm;

/// How the algorithm of an operation is chosen. All ranks of a group choose alike.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Communication {
    /// Whichever is predicted to be faster for the size of the buffer and of the world.
    #[default]
    Auto,
    /// Always the ring.
    Ring,
    /// Always the tree.
    Tree,
}

/// Seconds that a message takes however small it is, and per byte: between measurements of QUIC on
/// loopback with packets of 1,452 and of 6,500 bytes, links busy in both directions.
const ALPHA: f64 = 100e-6;
const BETA: f64 = 1.0 / 0.6e9;

impl Communication {
    /// The algorithm for a buffer of `bytes` among `world` ranks, by the alpha-beta model: a round
    /// that moves `m` bytes takes `ALPHA + BETA * m`.
    ///
    /// ```
    /// use meshwork_collectives::{Algorithm, Communication};
    ///
    /// assert_eq!(Communication::Auto.choose(16, 1 << 10), Algorithm::Tree);
    /// assert_eq!(Communication::Auto.choose(16, 64 << 20), Algorithm::Ring);
    /// assert_eq!(Communication::Tree.choose(16, 64 << 20), Algorithm::Tree);
    /// ```
    #[must_use]
    pub fn choose(self, world: u32, bytes: usize) -> Algorithm {
        match self {
            Self::Ring => Algorithm::Ring,
            Self::Tree => Algorithm::Tree,
            Self::Auto => {
                let (ranks, bytes) = (f64::from(world), bytes as f64);
                let ring = 2.0 * (ranks - 1.0) * (ALPHA + BETA * bytes / ranks);
                let tree = 2.0 * ranks.log2().ceil() * (ALPHA + BETA * bytes);
                if tree < ring {
                    Algorithm::Tree
                } else {
                    Algorithm::Ring
                }
            }
        }
    }
}
