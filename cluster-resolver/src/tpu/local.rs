use std::fs;
use std::path::Path;

/// The TPU cores of this machine, as its PCI devices show them.
pub(super) fn cores() -> u32 {
    cores_in(Path::new("/sys/bus/pci/devices"))
}

fn cores_in(devices: &Path) -> u32 {
    let Ok(devices) = fs::read_dir(devices) else {
        return 0;
    };
    let id = |path: &Path| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    devices
        .filter_map(|device| Some(device.ok()?.path()))
        .filter(|device| id(&device.join("vendor")) == GOOGLE)
        .map(|device| cores_per_chip(&id(&device.join("device"))))
        .sum()
}

/// The cores of a chip with this PCI device id; 0 for another device of the same vendor.
fn cores_per_chip(device: &str) -> u32 {
    match device {
        // v2 and v3, v4, v5p.
        "0x0027" | "0x005e" | "0x0062" => 2,
        // v5e, v6e.
        "0x0063" | "0x006f" => 1,
        _ => 0,
    }
}

/// Google's PCI vendor id.
const GOOGLE: &str = "0x1ae0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_told_from_other_devices_by_their_ids() {
        let folder = tempfile::tempdir().unwrap();
        for (slot, vendor, device) in [
            ("a", "0x1ae0\n", "0x005e\n"),
            ("b", "0x1ae0\n", "0x0063\n"),
            ("c", "0x1ae0\n", "0x0042\n"),
            ("d", "0x8086\n", "0x0063\n"),
        ] {
            let slot = folder.path().join(slot);
            fs::create_dir(&slot).unwrap();
            fs::write(slot.join("vendor"), vendor).unwrap();
            fs::write(slot.join("device"), device).unwrap();
        }
        assert_eq!(cores_in(folder.path()), 3);
        assert_eq!(cores_in(&folder.path().join("none")), 0);
    }
}
