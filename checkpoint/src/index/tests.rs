//! The index file: bytes and index are inverse, every changed byte and every truncation is
//! detected, and no input, a corpus of damaged files included, makes the reader panic.

use proptest::prelude::*;

use super::*;

fn index(parts: &[&str], body: &[u8]) -> Index {
    let files = parts.iter().map(|part| Entry::of(part, part.as_bytes(), 1));
    let files: Vec<Entry> = files.collect::<Result<_, _>>().unwrap();
    Index::new(Generation::new(7, 9), files, body.to_vec()).unwrap()
}

proptest! {
    #[test]
    fn bytes_and_index_are_inverse_and_any_other_byte_or_end_is_found(
        parts in prop::collection::btree_set("[a-z0-9]{1,4}(-of-1|\\.body)?", 0..4),
        body in prop::collection::vec(any::<u8>(), 0..40),
        place in any::<prop::sample::Index>(), bit in 0_u32..8,
    ) {
        prop_assume!(parts.iter().all(|part| is_part(part)));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let index = index(&parts, &body);
        let mut bytes = index.to_bytes();
        prop_assert_eq!(Index::from_bytes(&bytes), Ok(index));
        let place = place.index(bytes.len());
        prop_assert_eq!(Index::from_bytes(&bytes[..place]), Err(FileDamage::Index));
        bytes[place] ^= 1 << bit;
        prop_assert_eq!(Index::from_bytes(&bytes), Err(FileDamage::Index));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Index::from_bytes(&bytes);
        let mut hashed = bytes;
        let hash = last_line(&hashed);
        hashed.extend(hash.as_bytes());
        let _ = Index::from_bytes(&hashed);
        let _ = other_format(&hashed);
    }
}

#[test]
fn lines_that_no_writer_makes_are_refused_though_their_hash_is_right() {
    let hash = "0123456789abcdef";
    let generation = "g00000007-0000000000000009";
    let file = format!("4 1 {hash} a");
    let check = |text: String, is_read: bool| {
        let mut bytes = text.clone().into_bytes();
        bytes.extend(last_line(text.as_bytes()).as_bytes());
        assert_eq!(Index::from_bytes(&bytes).is_ok(), is_read, "{text}");
    };
    check(
        format!("{MAGIC}{FORMAT}\n{generation}\n{file}\nbody\nmine"),
        true,
    );
    check(format!("{MAGIC}{FORMAT}\n{generation}\nbody\n"), true);
    for file in [
        format!("4 5 {hash} a"),
        format!("4 -1 {hash} a"),
        format!("04 1 {hash} a"),
        format!("4 1 {hash} ../a"),
        format!("4 1 {hash} "),
        format!("4 1 {hash} a\n4 1 {hash} a"),
        String::new(),
    ] {
        check(
            format!("{MAGIC}{FORMAT}\n{generation}\n{file}\nbody\n"),
            false,
        );
    }
    check(format!("{MAGIC}{FORMAT}\nbody\n"), false);
    check(format!("{MAGIC}{FORMAT}\n{generation}\n{file}"), false);
    check(
        format!("meshwork checkpoint 3\n{generation}\nbody\n"),
        false,
    );
}

#[test]
fn an_intact_index_of_another_format_is_told_from_a_damaged_one() {
    let sealed = |first: &str| {
        let content = format!("{first}\n{}\nbody\n", Generation::new(7, 9));
        content.clone() + &last_line(content.as_bytes())
    };
    for (first, expected) in [
        ("meshwork checkpoint 1", Some(1)),
        ("meshwork checkpoint 3", Some(3)),
        ("meshwork checkpoint 2", None),
        ("meshwork checkpoint", None),
        ("meshwork checkpoint x", None),
        ("another checkpoint 3", None),
    ] {
        assert_eq!(other_format(sealed(first).as_bytes()), expected, "{first}");
    }
    // A bit of the disk makes no other format.
    let flipped = sealed("meshwork checkpoint 2").replacen('2', "3", 1);
    assert_eq!(other_format(flipped.as_bytes()), None);
}

#[test]
fn a_file_is_named_so_that_it_is_found_and_nothing_else_is() {
    for part in ["a", "00000-of-00002.safetensors", "step-1", "A_b.c"] {
        assert!(Entry::of(part, b"", 0).is_ok(), "{part}");
    }
    let generation = Generation::new(1, 1).to_string();
    for part in [
        "",
        ".",
        "a/b",
        "a b",
        "a\n",
        "ä",
        INDEX,
        "index.unfinished",
        &generation,
    ] {
        let refused = Error::Part {
            part: part.to_owned(),
        };
        assert_eq!(Entry::of(part, b"", 0), Err(refused), "{part}");
    }
    let twice = [
        Entry::of("a", b"", 0).unwrap(),
        Entry::of("a", b"1", 1).unwrap(),
    ];
    let part = "a".to_owned();
    assert_eq!(
        Index::new(Generation::new(1, 1), twice, Vec::new()),
        Err(Error::Part { part })
    );
    let (length, head) = (2, 3);
    assert_eq!(Entry::of("a", b"12", 3), Err(Error::Head { length, head }));
}

#[test]
fn no_index_of_the_corpus_breaks_the_reader() {
    crate::replay::replay("index", decode_index);
}
