use std::env;

/// How many times a test that draws at random does so: `few`, times the number in `MESHWORK_SOAK`.
///
/// # Panics
/// Where that is no number, or more than there are.
#[must_use]
pub fn cases(few: u32) -> u32 {
    let times = match env::var("MESHWORK_SOAK") {
        Ok(times) => times.parse().expect("MESHWORK_SOAK is a number"),
        Err(_) => 1,
    };
    few.checked_mul(times).expect("fewer draws than 2³²")
}
