//! How answers came about, for people to read and for programs to show.

use std::borrow::Cow;
use std::fmt::{self, Display};

use crate::error::Error;
use crate::text::Shortened;
use crate::variables::Variables;

mod origin;

pub use origin::{Origin, Source};

/// How the answers of a resolver came about: what it looked at, in order, and what it made of it.
///
/// A resolver fills one in by [`read`](Self::read), [`ignore`](Self::ignore),
/// [`absent`](Self::absent), [`conclude`](Self::conclude) and [`fail`](Self::fail). What is entered
/// is shown to people: no token, key or password belongs here. Shown, it is one paragraph for each
/// question, the conclusion first.
///
/// ```
/// use meshwork_cluster_resolver::{Explanation, Origin, Question};
///
/// let mut explanation = Explanation::default();
/// explanation.read(Question::Task, Origin::variable("SLURM_PROCID"), "3");
/// let why = "the variable of another launcher";
/// explanation.ignore(Question::Task, Origin::variable("OMPI_COMM_WORLD_RANK"), "0", why);
/// explanation.conclude(Question::Task, "worker:3");
/// assert_eq!(
///     explanation.to_string(),
///     "task: worker:3
///     variable SLURM_PROCID: 3
///     not variable OMPI_COMM_WORLD_RANK: 0 (the variable of another launcher)
/// "
/// );
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Explanation {
    steps: Vec<Step>,
}

/// One thing that a resolver saw or decided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    members: Vec<usize>,
    question: Question,
    finding: Finding,
}

/// Which answer of a resolver a step is about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Question {
    /// Who is in the cluster.
    Cluster,
    /// Which task this process is.
    Task,
    /// Where to reach a task.
    Master,
    /// The protocol put before addresses.
    RpcLayer,
    /// The kind of place the process runs in.
    Environment,
    /// The accelerators of each task.
    Accelerators,
}

/// What a resolver saw or decided in one step.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// A value was there and counts.
    Read {
        /// Where it was.
        from: Origin,
        /// The value.
        value: String,
    },
    /// A value was there and does not count.
    Ignored {
        /// Where it was.
        from: Origin,
        /// The value.
        value: String,
        /// Why it does not count.
        why: Cow<'static, str>,
    },
    /// A value was looked for in vain.
    Absent {
        /// Where it was looked for.
        from: Origin,
    },
    /// The answer, made of what was read.
    Concluded {
        /// The answer in a few words.
        value: String,
    },
    /// There is no answer.
    Failed {
        /// Why.
        error: Error,
    },
}

impl Explanation {
    /// Notes a value that counts.
    pub fn read(&mut self, question: Question, from: Origin, value: impl Into<String>) {
        let value = value.into();
        self.push(question, Finding::Read { from, value });
    }

    /// Notes a value that does not count, and why.
    pub fn ignore(
        &mut self,
        question: Question,
        from: Origin,
        value: impl Into<String>,
        why: impl Into<Cow<'static, str>>,
    ) {
        let (value, why) = (value.into(), why.into());
        self.push(question, Finding::Ignored { from, value, why });
    }

    /// Notes a place where no value was.
    pub fn absent(&mut self, question: Question, from: Origin) {
        self.push(question, Finding::Absent { from });
    }

    /// Notes the answer.
    pub fn conclude(&mut self, question: Question, value: impl Into<String>) {
        let value = value.into();
        self.push(question, Finding::Concluded { value });
    }

    /// Notes that there is no answer.
    pub fn fail(&mut self, question: Question, error: Error) {
        self.push(question, Finding::Failed { error });
    }

    /// Notes the answer, or that there is none.
    pub fn settle(&mut self, question: Question, answer: Result<impl Into<String>, Error>) {
        match answer {
            Ok(value) => self.conclude(question, value),
            Err(error) => self.fail(question, error),
        }
    }

    /// Takes in the steps of a resolver that this one is made of, by its position from 0.
    pub fn include(&mut self, member: usize, of_member: Self) {
        self.steps
            .extend(of_member.steps.into_iter().map(|mut step| {
                step.members.insert(0, member);
                step
            }));
    }

    /// Looks at a variable that a resolver reads. One that cannot be read is reported with each
    /// answer.
    pub(crate) fn look(
        &mut self,
        variables: &Variables,
        question: Question,
        variable: &'static str,
    ) {
        let from = Origin::variable(variable);
        match variables.read(variable) {
            Ok(Some(value)) => self.read(question, from, value),
            Ok(None) => self.absent(question, from),
            Err(_) => {}
        }
    }

    /// Notes a port that the program may choose, and which one it is by default.
    pub(crate) fn port(&mut self, field: &str, port: u16, default: u16) {
        let from = match port == default {
            true => Origin::default_value(),
            false => Origin::program(),
        };
        self.read(Question::Cluster, from.field(field), port.to_string());
    }

    /// What was read about this question in these places does not count: the program knows better.
    pub(crate) fn overrule(&mut self, question: Question, places: impl Fn(&Origin) -> bool) {
        for step in &mut self.steps {
            if let Finding::Read { from, value } = &step.finding
                && step.question == question
                && places(from)
            {
                let (from, value, why) = (from.clone(), value.clone(), OVERRULED.into());
                step.finding = Finding::Ignored { from, value, why };
            }
        }
    }

    /// Keeps what is about this question.
    pub(crate) fn retain(&mut self, question: Question) {
        self.steps.retain(|step| step.question == question);
    }

    /// What was seen and decided, in order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = &Step> {
        self.steps.iter()
    }

    fn push(&mut self, question: Question, finding: Finding) {
        let step = Step {
            members: Vec::new(),
            question,
            finding,
        };
        // What is looked at for two reasons is told once.
        if !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }
}

impl Step {
    /// The answer that this step is about.
    #[must_use]
    pub fn question(&self) -> Question {
        self.question
    }

    /// What was seen or decided.
    #[must_use]
    pub fn finding(&self) -> &Finding {
        &self.finding
    }

    /// Which resolver saw it: empty for the one that was asked, else the position of the member in
    /// it, then of that member's member.
    #[must_use]
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Whether this step holds an answer, or says that there is none.
    fn settles(&self) -> bool {
        matches!(
            self.finding,
            Finding::Concluded { .. } | Finding::Failed { .. }
        )
    }
}

impl Question {
    /// Every question, in the order in which answers are shown.
    pub const ALL: [Self; 6] = [
        Self::Cluster,
        Self::Task,
        Self::Master,
        Self::RpcLayer,
        Self::Environment,
        Self::Accelerators,
    ];
}

impl Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "cluster",
            Self::Task => "task",
            Self::Master => "master",
            Self::RpcLayer => "rpc layer",
            Self::Environment => "environment",
            Self::Accelerators => "accelerators",
        })
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { from, value } => write!(f, "{from}: {}", Shortened(value)),
            Self::Ignored { from, value, why } => {
                write!(f, "not {from}: {} ({why})", Shortened(value))
            }
            Self::Absent { from } => write!(f, "nothing in {from}"),
            Self::Concluded { value } if value.is_empty() => f.write_str("none"),
            Self::Concluded { value } => Shortened(value).fmt(f),
            Self::Failed { error } => write!(f, "unknown, because {error}"),
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for member in &self.members {
            write!(f, "resolver {member}: ")?;
        }
        self.finding.fmt(f)
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for question in Question::ALL {
            let about = || self.steps().filter(move |step| step.question == question);
            if about().next().is_none() {
                continue;
            }
            // What a member settled is evidence here.
            let settled = |step: &&Step| step.settles() && step.members.is_empty();
            match about().find(settled) {
                Some(step) => writeln!(f, "{question}: {step}")?,
                None => writeln!(f, "{question}:")?,
            }
            for step in about().filter(|step| !settled(step)) {
                writeln!(f, "    {step}")?;
            }
        }
        Ok(())
    }
}

/// Why a value that the program overrules does not count.
pub(crate) const OVERRULED: &str = "the program says otherwise";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_s_conclusion_is_evidence_of_the_whole() {
        let mut member = Explanation::default();
        member.conclude(Question::Cluster, "worker 2");
        let mut whole = Explanation::default();
        whole.include(1, member.clone());
        whole.conclude(Question::Cluster, "worker 4");
        assert_eq!(
            whole.to_string(),
            "cluster: worker 4\n    resolver 1: worker 2\n"
        );
        let mut outer = Explanation::default();
        outer.include(0, whole);
        let members: Vec<_> = outer.steps().map(Step::members).collect();
        assert_eq!(members, [&[0, 1][..], &[0]]);
    }

    #[test]
    fn an_answer_that_is_missing_says_why() {
        let mut explanation = Explanation::default();
        explanation.absent(Question::Task, Origin::variable("TF_CONFIG").field("task"));
        let variable = "TF_CONFIG".to_owned();
        explanation.settle(
            Question::Task,
            Err::<String, _>(Error::NotUnicode { variable }),
        );
        assert_eq!(
            explanation.to_string(),
            "task: unknown, because TF_CONFIG is not valid UTF-8: set it to plain text\n    \
             nothing in task in variable TF_CONFIG\n"
        );
    }

    #[test]
    fn long_and_invisible_text_is_shortened_on_its_line() {
        let mut explanation = Explanation::default();
        let value = "a\n".repeat(100);
        explanation.read(Question::Cluster, Origin::file("hosts"), value);
        let shown = explanation.to_string();
        assert_eq!(shown.lines().count(), 2);
        assert!(
            shown.lines().all(|line| line.chars().count() < 150),
            "{shown}"
        );
    }
}
