//! Splits a worker's output into lines with its rank before each: `\r` progress bars too, long
//! lines broken at UTF-8 boundaries, in bounded memory. Keeps the last meaningful line for the
//! error message. No input or output here; `pump` does that.

/// Cuts one stream of bytes into prefixed lines, in bounded memory.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: Vec<u8>,
    /// The bytes after the last newline; at most [`LONGEST_LINE`].
    pending: Vec<u8>,
    /// The start of the last line that says something; at most [`LAST_WORDS`] bytes.
    last: Vec<u8>,
}

impl Lines {
    pub(super) fn new(prefix: impl Into<Vec<u8>>) -> Self {
        Self {
            prefix: prefix.into(),
            pending: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Takes what was read and appends the lines that it completes to `out`.
    pub(super) fn push(&mut self, read: &[u8], out: &mut Vec<u8>) {
        for piece in read.split_inclusive(|&byte| byte == b'\n') {
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            self.extend(text, out);
            if ended {
                self.end_line(self.pending.len(), out);
            }
        }
    }

    /// The stream has ended: appends a last line without newline to `out`, with one.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            self.end_line(self.pending.len(), out);
        }
    }

    /// The start of the last line that says something.
    pub(super) fn last_words(&self) -> Option<String> {
        let text = self.last.trim_ascii();
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Adds text without newline to the pending line and breaks that where it gets too long.
    fn extend(&mut self, mut text: &[u8], out: &mut Vec<u8>) {
        while self.pending.len() + text.len() > LONGEST_LINE {
            let (fitting, rest) = text.split_at(LONGEST_LINE - self.pending.len());
            self.pending.extend_from_slice(fitting);
            self.end_line(character_boundary(&self.pending), out);
            text = rest;
        }
        self.pending.extend_from_slice(text);
    }

    /// Appends the first `len` pending bytes to `out` as a line.
    fn end_line(&mut self, len: usize, out: &mut Vec<u8>) {
        let (line, _) = self.pending.split_at(len);
        // A carriage return right before the newline is the end of a line, as on Windows.
        let (redrawn, ending) = match line.strip_suffix(b"\r") {
            Some(redrawn) => (redrawn, &b"\r\n"[..]),
            None => (line, &b"\n"[..]),
        };
        for (index, state) in redrawn.split(|&byte| byte == b'\r').enumerate() {
            if index > 0 {
                out.push(b'\r');
            }
            out.extend_from_slice(&self.prefix);
            out.extend_from_slice(state);
            if !state.trim_ascii().is_empty() && !state.starts_with(BACKTRACE_HINT) {
                self.last.clear();
                self.last.extend(state.iter().take(LAST_WORDS));
            }
        }
        out.extend_from_slice(ending);
        self.pending.drain(..len);
    }
}

/// Where to break `text` so that a UTF-8 character at its end is not torn; its length if there is
/// none or it is not UTF-8.
fn character_boundary(text: &[u8]) -> usize {
    const LONGEST_CHARACTER: usize = 4;
    let start = (text.len().saturating_sub(LONGEST_CHARACTER - 1)..text.len())
        .rev()
        .find(|&at| text[at] & 0b1100_0000 != 0b1000_0000);
    match start {
        Some(at) if str::from_utf8(&text[at..]).is_err_and(|e| e.error_len().is_none()) => at,
        _ => text.len(),
    }
}

const LONGEST_LINE: usize = 64 * 1024;
const LAST_WORDS: usize = 240;

/// The last line of a Rust panic, which says least.
const BACKTRACE_HINT: &[u8] = b"note: run with `RUST_BACKTRACE";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `text` in pieces of `step` bytes.
    fn cut(text: &[u8], step: usize) -> (Vec<u8>, Lines) {
        let mut lines = Lines::new("[2] ");
        let mut out = Vec::new();
        for piece in text.chunks(step) {
            lines.push(piece, &mut out);
        }
        lines.finish(&mut out);
        (out, lines)
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        for step in 1..=text.len().max(1) {
            let (out, _) = cut(text.as_bytes(), step);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "in {step}s");
        }
    }

    #[test]
    fn every_line_gets_the_prefix() {
        check("", "");
        check("\n", "[2] \n");
        check("a\nb\n", "[2] a\n[2] b\n");
        check("a\n\nb", "[2] a\n[2] \n[2] b\n");
    }

    #[test]
    fn every_state_of_a_progress_bar_gets_the_prefix() {
        check("10%\r20%\r30%\n", "[2] 10%\r[2] 20%\r[2] 30%\n");
        check("a\r\nb\r\n", "[2] a\r\n[2] b\r\n");
        check("a\r", "[2] a\r\n");
    }

    #[test]
    fn bytes_that_are_not_utf8_pass_unchanged() {
        let (out, _) = cut(b"\xff\xfe\x00\n\xc3", 1);
        assert_eq!(out, b"[2] \xff\xfe\x00\n[2] \xc3\n");
    }

    #[test]
    fn a_line_is_broken_only_beyond_64_kib() {
        let full = vec![b'x'; LONGEST_LINE];
        let whole = [b"[2] ", &full[..], b"\n"].concat();
        assert_eq!(cut(&full, 1000).0, whole);
        assert_eq!(cut(&[&full[..], b"\n"].concat(), 1000).0, whole);
        let broken = [&whole[..], b"[2] x\n"].concat();
        assert_eq!(cut(&[&full[..], b"x\n"].concat(), 1 << 20).0, broken);
    }

    #[test]
    fn an_endless_line_is_kept_in_bounded_memory() {
        let mut lines = Lines::new("[2] ");
        let mut out = Vec::new();
        for _ in 0..100 {
            lines.push(&[b'x'; 30_000], &mut out);
            assert!(lines.pending.len() <= LONGEST_LINE);
        }
        lines.finish(&mut out);
        assert_eq!(out.iter().filter(|&&byte| byte == b'x').count(), 3_000_000);
    }

    #[test]
    fn a_break_does_not_tear_a_character() {
        for shift in 0..4 {
            let text = "x".repeat(shift) + &"𝄞".repeat(LONGEST_LINE / 2);
            let (out, _) = cut(text.as_bytes(), 7777);
            let lines = String::from_utf8(out).expect("no torn character");
            assert_eq!(lines.replace("\n[2] ", ""), format!("[2] {text}\n"));
        }
    }

    #[test]
    fn last_words_are_the_last_line_that_says_something() {
        let said = |text: &str| cut(text.as_bytes(), 3).1.last_words();
        assert_eq!(said(""), None);
        assert_eq!(said("\n \n"), None);
        assert_eq!(said("first\n last \n\n").unwrap(), "last");
        assert_eq!(said("10%\rlost\n").unwrap(), "lost");
        let panic = "panicked:\nbad\nnote: run with `RUST_BACKTRACE=1` …\n";
        assert_eq!(said(panic).unwrap(), "bad");
        assert_eq!(said(&"x".repeat(1000)).unwrap().len(), LAST_WORDS);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_whatever_the_pieces(
            text in prop::collection::vec(prop::sample::select(b"ab\n\r\xff\xc3".to_vec()), 0..60),
            step in 1..20_usize,
        ) {
            // The oracle: an empty prefix changes nothing but a missing last newline.
            let mut lines = Lines::new("");
            let mut out = Vec::new();
            for piece in text.chunks(step) {
                lines.push(piece, &mut out);
            }
            lines.finish(&mut out);
            let mut expected = text.clone();
            if !matches!(text.last(), None | Some(b'\n')) {
                expected.push(b'\n');
            }
            prop_assert_eq!(out, expected);
        }
    }
}
