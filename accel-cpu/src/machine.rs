//! What the system says of this machine: its processors and its memory.

use std::fs;

use meshwork_accel::Memory;

/// The memory of this machine at this moment, and how much of it can be had without swapping.
pub(crate) fn memory() -> Memory {
    fs::read_to_string("/proc/meminfo").map_or(Memory::UNKNOWN, |text| parse_memory(&text))
}

/// The memory of a NUMA node at this moment.
pub(crate) fn memory_of_node(node: usize) -> Memory {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    fs::read_to_string(path).map_or(Memory::UNKNOWN, |text| parse_memory(&text))
}

/// The model name of this machine's processors, as their maker gives it.
pub(crate) fn processor() -> Option<String> {
    parse_processor(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// A node does not know how much of its memory is available, only how much is free.
fn parse_memory(text: &str) -> Memory {
    let free = bytes(text, "MemAvailable:").or_else(|| bytes(text, "MemFree:"));
    match (bytes(text, "MemTotal:"), free) {
        (Some(total), Some(free)) => Memory::of(total).with_free(free),
        (Some(total), None) => Memory::of(total),
        _ => Memory::UNKNOWN,
    }
}

/// The number of a line `name  123 kB`; a node's lines have `Node 0` before the name.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once(name))?.1;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn parse_processor(text: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut names = lines.filter(|(key, _)| key.trim_end() == "model name");
    let name = names.next()?.1.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_and_available_memory_are_read() {
        let text = "MemTotal:       8000 kB\nMemFree:  10 kB\nMemAvailable:   5000 kB\n";
        assert_eq!(
            parse_memory(text),
            Memory::of(8_192_000).with_free(5_120_000)
        );
    }

    #[test]
    fn total_and_free_memory_of_a_node_are_read() {
        let text = "\nNode 1 MemTotal:  16 kB\nNode 1 MemFree:  4 kB\nNode 1 MemUsed: 12 kB\n";
        assert_eq!(parse_memory(text), Memory::of(16_384).with_free(4096));
    }

    #[test]
    fn memory_that_is_missing_or_no_number_is_unknown() {
        assert_eq!(parse_memory(""), Memory::UNKNOWN);
        assert_eq!(parse_memory("MemTotal: 1 MB"), Memory::UNKNOWN);
        let too_many = "MemTotal: 18446744073709551615 kB";
        assert_eq!(parse_memory(too_many), Memory::UNKNOWN);
        assert_eq!(parse_memory("MemTotal: 1 kB"), Memory::of(1024));
    }

    #[test]
    fn the_first_processor_gives_its_name() {
        let text =
            "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Other\n";
        assert_eq!(parse_processor(text).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(parse_processor("model name\t:\n"), None);
        assert_eq!(parse_processor("Hardware : board"), None);
    }
}
