use std::env;
use std::fs::File;
use std::io::{self, Read};

use ring::digest;

use crate::notice::say;

/// Where the executable file is, even if it has been replaced meanwhile.
const OWN: &str = "/proc/self/exe";

/// What program this process runs: by the word that it has been given, or else by every byte of its
/// executable file. Zeros where that cannot be read, which differ from nobody's, as a line says.
pub(super) async fn digest(word: Option<&str>) -> [u8; 16] {
    if let Some(word) = word {
        return short(&digest::digest(&digest::SHA256, word.as_bytes()));
    }
    let read = tokio::task::spawn_blocking(|| executable(OWN).and_then(of_file)).await;
    known(read.unwrap_or_else(|ended| Err(ended.into())), say)
}

/// Whether two programs may be one.
pub(super) fn may_be_equal(one: [u8; 16], other: [u8; 16]) -> bool {
    one == other || one == UNKNOWN || other == UNKNOWN
}

const UNKNOWN: [u8; 16] = [0; 16];

fn known(read: io::Result<[u8; 16]>, tell: impl FnOnce(String)) -> [u8; 16] {
    read.unwrap_or_else(|error| {
        tell(format!(
            "the executable file of this process cannot be read ({error}), so newcomers of other \
             builds are not told apart: set MESHWORK_PROGRAM to a word for the build in all \
             processes"
        ));
        UNKNOWN
    })
}

/// Without `/proc` it is what is at its path by now.
fn executable(own: &str) -> io::Result<File> {
    File::open(own).or_else(|_| File::open(env::current_exe()?))
}

fn of_file(mut file: File) -> io::Result<[u8; 16]> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(short(&context.finish())),
            read => context.update(&piece[..read]),
        }
    }
}

fn short(whole: &digest::Digest) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&whole.as_ref()[..16]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn programs_differ_by_their_word_or_their_bytes() {
        let (own, again) = (digest(None).await, digest(None).await);
        assert_eq!(own, again);
        let [a, b] = [digest(Some("a")).await, digest(Some("b")).await];
        assert!(!may_be_equal(a, b) && !may_be_equal(own, a) && may_be_equal(a, a));
        assert!(may_be_equal(UNKNOWN, a) && may_be_equal(a, UNKNOWN));
    }

    #[tokio::test]
    async fn without_proc_the_file_is_read_by_its_path() {
        let read = executable("/no/such/file").and_then(of_file);
        assert_eq!(read.unwrap(), digest(None).await);
    }

    #[test]
    fn a_program_that_cannot_be_read_is_unknown_and_a_line_says_so() {
        let mut said = Vec::new();
        // A folder is opened, and not read.
        let read = executable("/").and_then(of_file);
        assert_eq!(known(read, |line| said.push(line)), UNKNOWN);
        assert!(said[0].contains("MESHWORK_PROGRAM"), "{said:?}");
        assert_eq!(known(Ok([1; 16]), |line| said.push(line)), [1; 16]);
        assert_eq!(said.len(), 1);
    }
}
