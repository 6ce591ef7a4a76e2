//! Copies that go past the caches, for what is too long to be found there again.
//!
//! An ordinary store first reads the line that it writes to. A streaming store does not, which
//! saves a third of the traffic, but leaves nothing in the cache for whoever reads next.

#![expect(
    unsafe_code,
    reason = "streaming stores are instructions of some processors only"
)]

use meshwork_accel::Element;

/// Bytes from which on nothing of a copy would be left in a core's own cache.
const FAR: usize = 4 << 20;

/// Makes `into` a copy of `from`, which is as long.
pub(super) fn copy<T: Element>(into: &mut [T], from: &[T]) {
    #[cfg(target_arch = "x86_64")]
    if size_of_val(into) >= FAR
        && is_x86_feature_detected!("avx512f")
        && let Some(bytes) = T::bytes_mut(into)
    {
        // SAFETY: the processor has the instructions.
        unsafe { x86::stream(bytes, bytemuck::cast_slice(from)) };
        return;
    }
    into.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m512i, _mm_sfence, _mm512_loadu_si512, _mm512_stream_si512};

    const LINE: usize = size_of::<__m512i>();

    /// Whole aligned lines of `into` are streamed, what is before and behind them copied.
    #[target_feature(enable = "avx512f")]
    pub(super) fn stream(into: &mut [u8], from: &[u8]) {
        let before = into.as_ptr().align_offset(LINE).min(into.len());
        let (head, body) = into.split_at_mut(before);
        let (from_head, from_body) = from.split_at(before);
        head.copy_from_slice(from_head);
        let mut lines = body.chunks_exact_mut(LINE);
        let mut from_lines = from_body.chunks_exact(LINE);
        for (line, from) in lines.by_ref().zip(from_lines.by_ref()) {
            // SAFETY: the slice has as many bytes as are loaded.
            let loaded = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
            // SAFETY: the slice has as many bytes as are stored, and begins on a line.
            unsafe { _mm512_stream_si512(line.as_mut_ptr().cast(), loaded) };
        }
        lines
            .into_remainder()
            .copy_from_slice(from_lines.remainder());
        // Other ranks are told by a flag that this is done: the stores must not be overtaken by it.
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_any_length_and_alignment_are_exact() {
        let from: Vec<u8> = (0..=250).cycle().take(FAR + 300).collect();
        for (start, len) in [(0, FAR), (1, FAR + 1), (63, FAR + 200), (7, 100), (0, 0)] {
            let mut into = vec![0; FAR + 300];
            copy(
                &mut into[start..start + len],
                &from[3..3 + len.min(FAR + 297)],
            );
            assert_eq!(into[start..start + len], from[3..3 + len]);
            assert!(into[..start].iter().all(|byte| *byte == 0));
            assert!(into[start + len..].iter().all(|byte| *byte == 0));
        }
    }
}
