//! DER as the text that servers and kubeconfigs read.

/// The text of this object, such as a `CERTIFICATE`: RFC 7468, by base64 as RFC 4648 has it.
///
/// ```
/// let text = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
/// assert_eq!(meshwork_testing::pem("CERTIFICATE", &[1, 2, 3]), text);
/// ```
#[must_use]
pub fn pem(label: &str, der: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for (number, group) in der.chunks(3).enumerate() {
        if number % 16 == 0 {
            text.push('\n');
        }
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4_usize {
            let digit = bits >> (18 - 6 * place) & 63;
            let padding = place > group.len();
            let digit = usize::try_from(digit).map_or(b'=', |digit| digits[digit]);
            text.push(if padding { '=' } else { char::from(digit) });
        }
    }
    format!("-----BEGIN {label}-----{text}\n-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_padded_to_whole_groups() {
        let body = |bytes: &[u8]| pem("X", bytes).lines().nth(1).map(str::to_owned);
        for (bytes, expected) in [(&b"M"[..], "TQ=="), (b"Ma", "TWE="), (b"Man", "TWFu")] {
            assert_eq!(body(bytes).as_deref(), Some(expected));
        }
    }
}
