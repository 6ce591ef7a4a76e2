use meshwork_collectives::ConfigError;

use super::*;

#[test]
fn what_main_prints_is_a_sentence_with_its_causes() {
    let secret = Error::from(ConfigError::SecretMissing);
    assert_eq!(
        format!("{secret:?}"),
        ConfigError::SecretMissing.to_string()
    );
    assert_eq!(secret.exit_status(), 78);
    let damaged = Error::from(SnapshotDamage::Format);
    let cause = SnapshotDamage::Format.to_string();
    assert_eq!(format!("{damaged:?}"), format!("{damaged}: {cause}"));
}
