//! One step whose tasks write down where they run and what they resolve.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use meshwork_cluster_resolver::slurm::hosts;
use meshwork_testing::Slurm;
use serde_json::{Value, json};

/// A step that has not run yet.
pub(crate) struct Step<'a> {
    slurm: &'a Slurm,
    name: String,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    first: String,
}

/// What the tasks of a step wrote, by rank.
pub(crate) struct Answers {
    name: String,
    tasks: BTreeMap<usize, Task>,
    /// What `scontrol` showed of the step while it ran.
    shown: String,
}

struct Task {
    node: String,
    local: u64,
    answers: Value,
}

impl<'a> Step<'a> {
    pub(crate) fn new(slurm: &'a Slurm, parent: &Path, name: &str) -> Self {
        let folder = parent.join(name.replace(' ', "-"));
        fs::create_dir(&folder).expect("a new folder");
        let gate = Command::new("mkfifo").arg(folder.join("gate")).status();
        assert!(gate.is_ok_and(|status| status.success()), "mkfifo");
        Self {
            slurm,
            name: name.to_owned(),
            folder,
            variables: Vec::new(),
            first: String::new(),
        }
    }

    pub(crate) fn with(mut self, variable: &str, value: &str) -> Self {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Each task removes this file before it asks.
    pub(crate) fn removing(mut self, file: &Path) -> Self {
        self.first = format!("rm -f {}; ", file.display());
        self
    }

    /// Runs `srun` or `salloc` with these words, and the tasks after them.
    pub(crate) fn run(&self, program: &str, words: &str) -> Answers {
        let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        words.extend(["sh".to_owned(), "-c".to_owned(), self.script()]);
        self.slurm.run(program, &words, &self.variables);
        self.answers()
    }

    /// The command of a task, for a shell.
    pub(crate) fn command_line(&self) -> String {
        format!("sh -c '{}'", self.script())
    }

    /// What each task does: it asks, writes down where it runs, and waits until all others have,
    /// for `scontrol` forgets the parts of a step whose tasks have ended. The last one opens the
    /// gate, with a line for each and some to spare.
    fn script(&self) -> String {
        let (folder, meshwork) = (self.folder.display(), meshwork());
        format!(
            "{}cd {folder}; {meshwork} resolve slurm --json > $SLURM_PROCID.json 2> /dev/null; \
             [ $SLURM_PROCID = 0 ] && \
             for job in ${{SLURM_JOB_ID_PACK_GROUP_0:-$SLURM_JOB_ID}} $SLURM_JOB_ID_PACK_GROUP_1; \
             do scontrol show step $job.$SLURM_STEP_ID; done > step 2> /dev/null; \
             exec 3<>gate; echo $SLURMD_NODENAME $SLURM_LOCALID > $SLURM_PROCID.node; \
             [ $(ls *.node | wc -l) -ge $SLURM_STEP_NUM_TASKS ] && \
             yes | head -n $((2 * SLURM_STEP_NUM_TASKS)) >&3; read all_there <&3",
            self.first
        )
    }

    /// What the tasks wrote.
    pub(crate) fn answers(&self) -> Answers {
        let read = |name: &str| fs::read_to_string(self.folder.join(name));
        let mut tasks = BTreeMap::new();
        while let Ok(place) = read(&format!("{}.node", tasks.len())) {
            let (node, local) = place.trim().split_once(' ').expect("a node and a number");
            let answers = read(&format!("{}.json", tasks.len())).expect("an answer");
            let task = Task {
                node: node.to_owned(),
                local: local.parse().expect("a number"),
                answers: serde_json::from_str(&answers).expect("one JSON object"),
            };
            tasks.insert(tasks.len(), task);
        }
        Answers {
            name: self.name.clone(),
            tasks,
            shown: read("step").unwrap_or_default(),
        }
    }
}

impl Answers {
    /// All tasks name the same cluster, in which each rank is on the node where it ran, with a port
    /// of its own; and `scontrol` counts the same tasks on the same nodes.
    #[track_caller]
    pub(crate) fn check(&self, tasks: usize) {
        let name = &self.name;
        assert_eq!(self.tasks.len(), tasks, "{name}: {}", self.shown);
        let addresses = self
            .tasks
            .values()
            .map(|task| format!("{}:{}", task.node, 8888 + task.local));
        let cluster = json!({"worker": addresses.collect::<Vec<_>>()});
        for (rank, task) in &self.tasks {
            let answers = &task.answers;
            assert_eq!(answers["errors"], json!({}), "{name}, rank {rank}");
            assert_eq!(answers["cluster"], cluster, "{name}, rank {rank}");
            assert_eq!(
                answers["task"],
                json!({"type": "worker", "index": rank}),
                "{name}"
            );
            assert_eq!(
                (&answers["rank"], &answers["world"]),
                (&json!(rank), &json!(tasks)),
                "{name}"
            );
            let master = format!("grpc://{}:{}", task.node, 8888 + task.local);
            assert_eq!(answers["master"], json!(master), "{name}, rank {rank}");
        }
        self.check_shown();
    }

    /// A heterogeneous step is shown in its parts.
    #[track_caller]
    fn check_shown(&self) {
        let fields = |name: &'static str| {
            let fields = self.shown.split_whitespace();
            fields.filter_map(move |field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let nodes = fields("NodeList").flat_map(|list| hosts(list).expect("a list of hosts"));
        let ours = self.tasks.values().map(|task| task.node.clone());
        let (shown, ours): (BTreeSet<_>, BTreeSet<_>) = (nodes.collect(), ours.collect());
        assert_eq!(ours, shown, "{}: {}", self.name, self.shown);
        let tasks = fields("Tasks").map(|tasks| tasks.parse::<usize>().expect("a number"));
        assert_eq!(
            self.tasks.len(),
            tasks.sum::<usize>(),
            "{}: {}",
            self.name,
            self.shown
        );
    }

    #[track_caller]
    pub(crate) fn check_gpus(&self, expected: &[u32]) {
        let gpus = self
            .tasks
            .values()
            .map(|task| task.answers["num_accelerators"]["GPU"].clone());
        assert_eq!(gpus.collect::<Vec<_>>(), expected, "{}", self.name);
    }

    /// No task says who is in the cluster, and all say why.
    #[track_caller]
    pub(crate) fn check_refused(&self, tasks: usize, why: &str) {
        assert_eq!(self.tasks.len(), tasks, "{}", self.name);
        for task in self.tasks.values() {
            assert_eq!(task.answers["cluster"], Value::Null, "{}", self.name);
            let message = task.answers["errors"]["cluster"]
                .as_str()
                .unwrap_or_default();
            assert!(message.contains(why), "{}: {message}", self.name);
        }
    }

    /// Where each rank ran.
    pub(crate) fn nodes(&self) -> Vec<&str> {
        self.tasks.values().map(|task| task.node.as_str()).collect()
    }
}

/// The command under test.
pub(crate) fn meshwork() -> String {
    env!("CARGO_BIN_EXE_meshwork").to_owned()
}
