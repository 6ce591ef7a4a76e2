//! Reads optimized programs back from the compiler (`HloModuleProto`) to tell which collectives and
//! which algorithms XLA chose. For reports only: nothing here is compiled or run.

use std::collections::BTreeSet;

use prost::Message;

use crate::Error;

/// The optimized HLO of a program: the instructions that devices run.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizedProgram {
    instructions: Vec<Instruction>,
}

/// One instruction of an optimized program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Instruction {
    name: String,
    opcode: String,
    backend_config: String,
    /// Whether it is part of a fusion, which then is what runs.
    fused: bool,
}

impl OptimizedProgram {
    /// All instructions, those of fusions among them.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The instructions by which devices exchange data: collectives that stand alone, and fusions
    /// for which the compiler chose an algorithm. The `-done` halves of asynchronous ones are left
    /// out.
    pub fn collectives(&self) -> impl Iterator<Item = &Instruction> {
        let moves = |instruction: &&Instruction| {
            instruction.algorithm().is_some() || (instruction.is_collective() && !instruction.fused)
        };
        self.instructions.iter().filter(moves)
    }

    /// Reads an `HloModuleProto`, alone or with its configuration.
    pub(crate) fn decode(format: &str, code: &[u8]) -> Result<Self, Error> {
        let unreadable = |source| Error::Program {
            format: format.to_owned(),
            source,
        };
        let module = match format {
            "hlo" => ModuleProto::decode(code).map_err(|source| unreadable(Some(source)))?,
            "hlo_with_config" => {
                let both = ModuleWithConfigProto::decode(code);
                both.map_err(|source| unreadable(Some(source)))?
                    .hlo_module
                    .unwrap_or_default()
            }
            _ => return Err(unreadable(None)),
        };
        let fusions = module
            .computations
            .iter()
            .flat_map(|computation| &computation.instructions);
        let fusions = fusions.filter(|instruction| instruction.opcode == "fusion");
        let fused: BTreeSet<i64> = fusions
            .flat_map(|fusion| fusion.called_computation_ids.clone())
            .collect();
        let instructions = module.computations.into_iter().flat_map(|computation| {
            let fused = fused.contains(&computation.id);
            computation
                .instructions
                .into_iter()
                .map(move |proto| Instruction {
                    fused,
                    ..Instruction::of(proto)
                })
        });
        Ok(Self {
            instructions: instructions.collect(),
        })
    }
}

impl Instruction {
    /// Its name in the program.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its opcode, such as `all-reduce`.
    #[must_use]
    pub fn opcode(&self) -> &str {
        &self.opcode
    }

    /// The backend configuration, in a JSON form of the compiler's own; may be empty.
    #[must_use]
    pub fn backend_config(&self) -> &str {
        &self.backend_config
    }

    /// How TPU compilers emit a collective, such as `RotatedPincerEmitter`.
    #[must_use]
    pub fn emitter(&self) -> Option<&str> {
        field(self.algorithm()?, "emitter")
    }

    /// The strategy that TPU compilers chose for a collective, such as
    /// `UniDirection1DRingStrategy`.
    #[must_use]
    pub fn strategy(&self) -> Option<&str> {
        field(self.algorithm()?, "strategy")
    }

    /// The part of the backend configuration from a collective's algorithm on.
    fn algorithm(&self) -> Option<&str> {
        let (_, algorithm) = self
            .backend_config
            .split_once("\"collective_algorithm_config\":{")?;
        Some(algorithm)
    }

    fn is_collective(&self) -> bool {
        let opcode = self.opcode.strip_suffix("-start").unwrap_or(&self.opcode);
        COLLECTIVES.contains(&opcode)
    }

    fn of(proto: InstructionProto) -> Self {
        Self {
            fused: false,
            name: proto.name,
            opcode: proto.opcode,
            backend_config: String::from_utf8_lossy(&proto.backend_config).into_owned(),
        }
    }
}

/// The text of a field, written without blanks or escapes as compilers do, before the object ends.
fn field<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let object = object.split('}').next()?;
    let (_, rest) = object.split_once(&format!("\"{name}\":\""))?;
    rest.split('"').next()
}

const COLLECTIVES: [&str; 7] = [
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
];

// The fields of xla/service/hlo.proto that are used here.

#[derive(Clone, PartialEq, Message)]
struct ModuleWithConfigProto {
    #[prost(message, optional, tag = "1")]
    hlo_module: Option<ModuleProto>,
}

#[derive(Clone, PartialEq, Message)]
struct ModuleProto {
    #[prost(message, repeated, tag = "3")]
    computations: Vec<ComputationProto>,
}

#[derive(Clone, PartialEq, Message)]
struct ComputationProto {
    #[prost(message, repeated, tag = "2")]
    instructions: Vec<InstructionProto>,
    #[prost(int64, tag = "5")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct InstructionProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    opcode: String,
    #[prost(int64, repeated, tag = "38")]
    called_computation_ids: Vec<i64>,
    #[prost(bytes = "vec", tag = "43")]
    backend_config: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(name: &str, opcode: &str, called: &[i64], config: &str) -> InstructionProto {
        InstructionProto {
            name: name.to_owned(),
            opcode: opcode.to_owned(),
            called_computation_ids: called.to_vec(),
            backend_config: config.as_bytes().to_vec(),
        }
    }

    /// A fusion with an all-reduce inside, and a permutation that goes on while others run.
    fn module() -> ModuleProto {
        let ring =
            r#"{"x":1,"collective_algorithm_config":{"emitter":"E","strategy":"S","debug":"{}"}}"#;
        let entry = vec![
            instruction("f", "fusion", &[7], ring),
            instruction(
                "begin",
                "collective-permute-start",
                &[],
                r#"{"strategy":"none"}"#,
            ),
            instruction("end", "collective-permute-done", &[], ""),
            instruction("sum", "add", &[], ""),
        ];
        let inside = vec![instruction("inner", "all-reduce", &[], "")];
        ModuleProto {
            computations: vec![
                ComputationProto {
                    instructions: inside,
                    id: 7,
                },
                ComputationProto {
                    instructions: entry,
                    id: 8,
                },
            ],
        }
    }

    #[test]
    fn what_moves_data_is_told_with_its_strategy() {
        let both = ModuleWithConfigProto {
            hlo_module: Some(module()),
        };
        let program = OptimizedProgram::decode("hlo_with_config", &both.encode_to_vec()).unwrap();
        assert_eq!(program.instructions().len(), 5);
        let told = program
            .collectives()
            .map(|one| (one.name(), one.emitter(), one.strategy()));
        let expected = [("f", Some("E"), Some("S")), ("begin", None, None)];
        assert!(told.eq(expected));
        let alone = OptimizedProgram::decode("hlo", &module().encode_to_vec()).unwrap();
        assert_eq!(alone, program);
    }

    #[test]
    fn other_forms_and_broken_ones_are_refused() {
        for (format, code) in [
            ("hlo", b"\xff".as_slice()),
            ("hlo_with_config", b"\xff"),
            ("mlir", b""),
        ] {
            let refused = OptimizedProgram::decode(format, code);
            assert!(matches!(refused, Err(Error::Program { .. })), "{format}");
        }
    }
}
