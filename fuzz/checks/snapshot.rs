//! What holds for snapshots, whatever is read: shared by the fuzz target and by the test that
//! replays its corpus. A check panics when it does not hold.

use meshwork_strategy::{Snapshot, SnapshotDamage};

/// What is read is written so that it reads the same; a false hash is set right first, as few bytes
/// that are made up have a right one.
pub(crate) fn snapshot(bytes: &[u8]) {
    let read = match Snapshot::from_bytes(bytes) {
        Err(SnapshotDamage::Hash { stated, found }) => {
            let [stated, found] = [stated, found].map(|hash| format!("{hash:016x}").into_bytes());
            let mut bytes = bytes.to_vec();
            let places = 0..(bytes.len() + 1).saturating_sub(stated.len());
            for place in places {
                let place = place..place + stated.len();
                if bytes[place.clone()] == stated {
                    bytes[place].copy_from_slice(&found);
                }
            }
            Snapshot::from_bytes(&bytes)
        }
        read => read,
    };
    if let Ok(snapshot) = read {
        let bytes = snapshot.to_bytes().expect("what was in a file fits in one");
        let again = Snapshot::from_bytes(&bytes).expect("what is written is read");
        // As text, as some numbers differ from themselves.
        assert_eq!(format!("{again:?}"), format!("{snapshot:?}"));
    }
}
