use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;
use zeroize::Zeroize;

/// 32 secret bytes, zero at first: wiped when they are dropped, and on a page of their own, which
/// core dumps leave out (Linux).
pub(super) struct Page(MmapMut);

impl Page {
    pub(super) fn new() -> io::Result<Self> {
        let memory = MmapMut::map_anon(32)?;
        #[cfg(all(target_os = "linux", not(meshwork_portable)))]
        memory.advise(memmap2::Advice::DontDump)?;
        Ok(Self(memory))
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_left_out_of_core_dumps_and_of_nothing_else() {
        let mut page = Page::new().unwrap();
        page.fill(0x5a);
        assert_eq!(&page[..], [0x5a; 32]);
        let address = page.as_ptr().addr();
        // The kernel joins neighbours that are alike, as pages of other secrets are.
        let holds_it = |line: &str| {
            let (start, rest) = line.split_once('-')?;
            let (end, _) = rest.split_once(' ')?;
            let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16));
            Some((start.ok()?..end.ok()?).contains(&address))
        };
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| holds_it(line) != Some(true));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
        // "dd" is the flag for that, and "wr" that of what can be written to (proc(5)).
        let flags: Vec<_> = flags.split_whitespace().collect();
        assert!(flags.contains(&"dd") && flags.contains(&"wr"), "{flags:?}");
    }
}
