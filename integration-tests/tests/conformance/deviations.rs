//! Where this project means to answer otherwise than the recorded system, and why.
//!
//! Each rule holds for any case it fits, whether or not it was recorded.

/// A rule by which an answer differs, and the reason in one line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Deviation {
    /// What is done otherwise.
    pub(crate) rule: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
}

#[expect(dead_code, reason = "the first topics bring the first rules")]
impl Deviation {
    const fn new(rule: &'static str, reason: &'static str) -> Self {
        Self { rule, reason }
    }
}
