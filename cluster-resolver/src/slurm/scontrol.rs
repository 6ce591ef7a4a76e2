//! Asks the world outside: `scontrol` and files.

use std::fs;
use std::path::{Path, PathBuf};

use super::placement::Outside;
use crate::command::{Said, said_by};
use crate::error::{CommandProblem, ScontrolProblem, SlurmError};

/// The `scontrol` command, if it may be asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Scontrol {
    program: Option<PathBuf>,
}

impl Scontrol {
    pub(super) fn program(program: impl Into<PathBuf>) -> Self {
        Self {
            program: Some(program.into()),
        }
    }

    pub(super) fn not_asked() -> Self {
        Self { program: None }
    }
}

impl Outside for Scontrol {
    fn file(&self, path: &Path) -> Result<String, SlurmError> {
        fs::read_to_string(path).map_err(|error| SlurmError::HostFile {
            path: path.to_owned(),
            kind: error.kind(),
        })
    }

    fn distribution(&self, step: &str) -> Result<String, ScontrolProblem> {
        let program = self.program.as_ref().ok_or(ScontrolProblem::NotAsked)?;
        distribution_in(&said_by(program, &["show", "step", step])?)
    }
}

/// The last field of its line, so it may hold blanks.
fn distribution_in(said: &Said) -> Result<String, ScontrolProblem> {
    if !said.output.contains("StepId=") {
        let is_unknown =
            said.output.contains("not found") || said.errors.contains("Invalid job id");
        return Err(match is_unknown {
            true => ScontrolProblem::Unknown,
            false => CommandProblem::Failed {
                said: said.last_words(),
            }
            .into(),
        });
    }
    let mut lines = said.output.lines();
    let value = lines.find_map(|line| line.split_once(" Dist=").map(|(_, value)| value.trim()));
    match value {
        Some(value) if !value.is_empty() => Ok(value.to_owned()),
        _ => Err(ScontrolProblem::Answer {
            field: "Dist",
            value: String::new(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "\
StepId=34.0 UserId=0 StartTime=2026-11-21T16:12:38 TimeLimit=UNLIMITED
   State=RUNNING Partition=p NodeList=n[3-4]
   Nodes=2 CPUs=4 Tasks=4 Name=bash Network=(null)
   CPUFreqReq=Default Dist=arbitrary task distribution
   SrunHost:Pid=vm:21425
";

    fn found(output: &str, errors: &str) -> Result<String, ScontrolProblem> {
        distribution_in(&Said {
            output: output.to_owned(),
            errors: errors.to_owned(),
        })
    }

    #[test]
    fn the_distribution_is_the_rest_of_its_line() {
        let expected = Ok("arbitrary task distribution".to_owned());
        assert_eq!(found(SHOWN, ""), expected);
        let block = SHOWN.replace("arbitrary task distribution", "Block");
        assert_eq!(found(&block, ""), Ok("Block".to_owned()));
    }

    #[test]
    fn an_answer_without_a_step_or_without_a_distribution_is_told_apart() {
        let unknown = Err(ScontrolProblem::Unknown);
        assert_eq!(found("Job step 7.0 not found\n", ""), unknown);
        let invalid = "slurm_get_job_steps error: Invalid job id specified\n";
        assert_eq!(found("", invalid), unknown);
        let (field, value) = ("Dist", String::new());
        let expected = Err(ScontrolProblem::Answer { field, value });
        assert_eq!(found("StepId=1.0 UserId=0\n", ""), expected);
    }

    #[test]
    fn a_controller_that_is_away_is_no_unknown_step() {
        let away = "slurm_get_job_steps error: Unable to contact slurm controller\n";
        for (errors, said) in [(away, away.trim()), ("", "")] {
            let said = said.to_owned();
            let failed = CommandProblem::Failed { said };
            assert_eq!(found("", errors), Err(failed.into()));
        }
    }

    #[test]
    fn a_program_that_does_not_exist_is_named_by_its_problem() {
        let scontrol = Scontrol::program("/nowhere/scontrol");
        let kind = std::io::ErrorKind::NotFound;
        let expected = Err(CommandProblem::NotStarted { kind }.into());
        assert_eq!(scontrol.distribution("1.0"), expected);
        let expected = Err(ScontrolProblem::NotAsked);
        assert_eq!(Scontrol::not_asked().distribution("1.0"), expected);
    }
}
