use std::fmt::{self, Debug};

/// A token or a password, which no output shows.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the header of a request or its body.
    #[cfg(any(feature = "etcd", feature = "google"))]
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// The text with every occurrence of these secrets taken out.
pub(crate) fn removed<'a>(secrets: impl IntoIterator<Item = &'a Secret>, text: &str) -> String {
    let secrets = secrets
        .into_iter()
        .filter(|secret| secret.0.len() >= SHORTEST);
    secrets.fold(text.to_owned(), |text, secret| {
        text.replace(&secret.0, "[secret]")
    })
}

/// Bytes of the shortest text that is taken for a secret: a shorter one would take words apart.
const SHORTEST: usize = 8;

impl Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_taken_out_and_a_short_text_is_no_secret() {
        let secrets = ["token-a1", "", "c", "token-b2"].map(Secret::new);
        assert_eq!(
            removed(&secrets, "token-a1 token-b2 token-a1 c"),
            "[secret] [secret] [secret] c"
        );
        assert_eq!(
            format!("{secrets:?}"),
            "[[secret], [secret], [secret], [secret]]"
        );
    }
}
