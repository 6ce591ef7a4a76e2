//! The generations of TPUs.

/// All generations, for whoever has to choose one.
pub(crate) fn generations() -> String {
    GENERATIONS.map(|generation| generation.name).join(", ")
}

/// What a generation of TPUs is built as.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) name: &'static str,
    pub(crate) sides: usize,
    /// The chips of its largest slice.
    pub(crate) most: usize,
}

pub(crate) const GENERATIONS: [Generation; 7] = [
    Generation {
        name: "v2",
        sides: 2,
        most: 256,
    },
    Generation {
        name: "v3",
        sides: 2,
        most: 1024,
    },
    Generation {
        name: "v4",
        sides: 3,
        most: 4096,
    },
    Generation {
        name: "v5e",
        sides: 2,
        most: 256,
    },
    Generation {
        name: "v5p",
        sides: 3,
        most: 8960,
    },
    Generation {
        name: "v6e",
        sides: 2,
        most: 256,
    },
    Generation {
        name: "tpu7x",
        sides: 3,
        most: 9216,
    },
];
