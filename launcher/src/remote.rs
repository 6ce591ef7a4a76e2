//! A worker on another host: what `ssh` is asked to run there, and what that is told over its
//! standard input. Nothing of Meshwork has to be there but the program itself.
//!
//! ```text
//!   launcher ──stdin──> ssh ═══════> sh: reads its orders, starts the worker,
//!            <─stdout──     <═══════     then waits for both:
//!            <─stderr──                    "TERM", "KILL" …  a signal for the worker's group
//!                                          end of input      TERM, and KILL after the grace time
//! ```
//!
//! The secret, variables and arguments are in the orders, and in no command line. Where the
//! launcher or the connection is gone the input ends, and the worker with it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use meshwork_collectives::JobSecret;

use crate::hosts::Host;
use crate::{LaunchError, Signal};

/// What a worker on another host is started with.
pub(crate) struct RemoteWorker<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) args: &'a [OsString],
    /// Names and values; the last of one name counts, and none counts beside the secret.
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) secret: JobSecret,
    pub(crate) folder: PathBuf,
    pub(crate) grace: Duration,
}

impl RemoteWorker<'_> {
    /// What a shell there does: it sets everything up, starts the worker and watches it.
    ///
    /// # Errors
    /// [`LaunchError::RemoteVariable`] for a variable that no shell can set, or that some set
    /// themselves.
    pub(crate) fn orders(&self) -> Result<Orders, LaunchError> {
        let mut orders = b"\n".to_vec();
        let others = self.variables.iter();
        for (name, value) in others.filter(|(name, _)| name != JobSecret::ENV) {
            if !is_variable(name) || SET_BY_SHELLS.iter().any(|own| name == own) {
                return Err(LaunchError::RemoteVariable { name: name.clone() });
            }
            orders.extend_from_slice(b"export ");
            orders.extend_from_slice(name.as_bytes());
            orders.push(b'=');
            quote(value, &mut orders);
            orders.push(b'\n');
        }
        // A shell rounds nothing: less than a second of grace is one.
        let part = u64::from(self.grace.subsec_nanos() > 0);
        let seconds = self.grace.as_secs().saturating_add(part);
        orders.extend_from_slice(format!("meshwork_grace={seconds}\ncd ").as_bytes());
        quote(self.folder.as_os_str(), &mut orders);
        orders.extend_from_slice(b" || exit 125\nset --");
        for word in std::iter::once(self.program).chain(self.args.iter().map(AsRef::as_ref)) {
            orders.push(b' ');
            quote(word, &mut orders);
        }
        orders.extend_from_slice(SCRIPT.as_bytes());
        Ok(Orders::new(self.secret.clone(), orders))
    }
}

/// All that the shell on another host is told before it starts anything. The secret becomes digits
/// as it is written: core dumps would show them.
pub(crate) struct Orders {
    secret: JobSecret,
    rest: Vec<u8>,
}

impl Orders {
    /// Those that hand on this secret, and go on behind its digits with these bytes.
    pub(crate) fn new(secret: JobSecret, rest: Vec<u8>) -> Self {
        Self { secret, rest }
    }

    pub(crate) fn len(&self) -> usize {
        OPENING.len() + self.secret.to_hex().len() + self.rest.len()
    }

    /// Writes them to an `ssh` that has been told nothing: its pipe is empty and takes the digits
    /// at once, however slowly the rest is read, so that there are some for a moment only.
    pub(crate) fn write_to(self, ssh: &mut impl Write) -> io::Result<()> {
        ssh.write_all(OPENING)?;
        ssh.write_all(self.secret.to_hex().as_bytes())?;
        ssh.write_all(&self.rest)
    }
}

/// The beginning of the orders: they are one command, of which a shell does nothing before it has
/// the end.
const OPENING: &[u8] = b"{\nexport MESHWORK_JOB_SECRET=";

/// `ssh`, which asks for no password and does not wait longer for a host than this says. `orders`
/// is how many bytes it is going to be told.
pub(crate) fn ssh(host: &Host, config: Option<&Path>, orders: usize) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
    ssh.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2"]);
    if let Some(config) = config {
        ssh.arg("-F").arg(config);
    }
    ssh.arg("--").arg(host.destination());
    // Whatever shell the user has there gets one word in quotes, and the number. The word has no
    // line break and no `!`, which csh does not take there. Orders exit: 125 is for none.
    let remote = format!(r#"exec sh -c 'eval "$(head -c "$1")"; exit 125' sh {orders}"#);
    ssh.arg(remote);
    ssh
}

/// The line that hands a signal on.
pub(crate) fn signal_line(signal: Signal) -> Option<String> {
    Some(format!("{}\n", signal.short_name()?))
}

/// The end of the orders. The worker leads a session, and so a process group, of its own where
/// `setsid` is there; what it leaves behind is killed.
///
/// A shell without job control has SIGINT and SIGQUIT ignored in what it starts with `&`, and the
/// worker would inherit that: `env` takes it back. It is not given the program, as it would take a
/// path with `=` for a variable. Where it cannot, SIGINT is followed by SIGTERM.
///
/// What is set before the worker starts has names that no variable of a user's has: it would take
/// the place of one, and stay exported.
const SCRIPT: &str = r#"
exec 3<&0
tell() { kill -s "$1" -- "-$worker" 2>/dev/null || kill -s "$1" "$worker" 2>/dev/null; }
meshwork_after_int=TERM
if env --default-signal=INT,QUIT true </dev/null >/dev/null 2>&1
then
  meshwork_after_int=
  set -- env --default-signal=INT,QUIT sh -c "exec \"\$@\"" sh "$@"
fi
if command -v setsid >/dev/null
then setsid "$@" </dev/null 3<&- &
else "$@" </dev/null 3<&- &
fi
worker=$!
{
  while IFS= read -r signal <&3; do
    tell "$signal"
    if [ "$signal$meshwork_after_int" = INTTERM ]; then tell TERM; fi
  done
  tell TERM; sleep "$meshwork_grace"; tell KILL
} >/dev/null 2>&1 &
watch=$!
wait "$worker" 2>/dev/null
status=$?
kill "$watch" 2>/dev/null
kill -s KILL -- "-$worker" 2>/dev/null
exit "$status"
}
"#;

/// Puts a word between single quotes, for a shell.
fn quote(word: &OsStr, out: &mut Vec<u8>) {
    out.push(b'\'');
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend_from_slice(br"'\''"),
            byte => out.push(byte),
        }
    }
    out.push(b'\'');
}

/// Variables that shells keep for themselves, as bash does, which is `sh` on many hosts: they do
/// not let them be set, or hand on another value. `PWD` and the like are not among them: whoever
/// hands on a whole environment has them, and does not miss them.
const SET_BY_SHELLS: [&str; 18] = [
    "BASHOPTS",
    "BASHPID",
    "BASH_VERSINFO",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "LINENO",
    "OPTIND",
    "PPID",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SRANDOM",
    "UID",
];

fn is_variable(name: &OsStr) -> bool {
    let is_word = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let name = name.as_bytes();
    name.iter().all(is_word) && name.first().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Stdio};

    use super::*;

    /// What the user's shell on another host is told, of orders of this length.
    fn remote(orders: usize) -> OsString {
        let host = "a".parse::<crate::HostList>().unwrap();
        let ssh = ssh(host.place(1).unwrap()[0], None, orders);
        ssh.get_args().last().unwrap().to_owned()
    }

    /// That shell, without a network in between.
    fn shell(orders: usize) -> Child {
        Command::new("sh")
            .arg("-c")
            .arg(remote(orders))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// A worker by the script of this file.
    fn start(worker: &RemoteWorker<'_>) -> Child {
        let orders = worker.orders().unwrap();
        let mut shell = shell(orders.len());
        orders.write_to(shell.stdin.as_mut().unwrap()).unwrap();
        shell
    }

    /// What that shell reads.
    fn told(worker: &RemoteWorker<'_>) -> Vec<u8> {
        let mut told = Vec::new();
        worker.orders().unwrap().write_to(&mut told).unwrap();
        told
    }

    fn worker<'a>(program: &'a OsStr, args: &'a [OsString]) -> RemoteWorker<'a> {
        RemoteWorker {
            program,
            args,
            variables: Vec::new(),
            secret: JobSecret::generate().unwrap(),
            folder: PathBuf::from("/"),
            grace: Duration::from_secs(60),
        }
    }

    fn line(from: &mut impl BufRead) -> String {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[test]
    fn the_shell_of_the_user_is_told_nothing_that_csh_does_not_take() {
        let remote = remote(1);
        let told = remote.to_str().unwrap();
        assert!(!told.contains(['\n', '!']), "{told}");
    }

    #[test]
    fn orders_that_were_cut_off_start_nothing() {
        let args = ["-c", "echo started"].map(OsString::from);
        let orders = told(&worker(OsStr::new("sh"), &args));
        for cut in [0, orders.len() / 2, orders.len() - 2] {
            let mut shell = shell(orders.len());
            let mut input = shell.stdin.take().unwrap();
            input.write_all(&orders[..cut]).unwrap();
            drop(input);
            let ended = shell.wait_with_output().unwrap();
            assert!(!ended.status.success() && ended.stdout.is_empty(), "{cut}");
        }
    }

    #[test]
    fn a_grace_time_beyond_what_can_be_counted_is_the_longest() {
        let mut patient = worker(OsStr::new("true"), &[]);
        patient.grace = Duration::MAX;
        let orders = String::from_utf8(told(&patient)).unwrap();
        assert!(
            orders.contains(&format!("\nmeshwork_grace={}\n", u64::MAX)),
            "{orders}"
        );
    }

    #[test]
    fn words_and_values_arrive_as_they_are() {
        let strange = "it's $HOME `x` \"y\" \\ \n *";
        let args = [
            "-c",
            "printf %s \"$V|$1|$PWD|$grace|$status\"; cat; exit 7",
            "sh",
            strange,
        ];
        let args = args.map(OsString::from);
        let mut worker = worker(OsStr::new("sh"), &args);
        let variables = [("V", strange), ("grace", "cosine"), ("status", "new")];
        worker.variables = variables
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        let mut shell = start(&worker);
        let _held_open = shell.stdin.take();
        let ended = shell.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(7));
        let said = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(said, format!("{strange}|{strange}|/|cosine|new"));
    }

    #[test]
    fn the_secret_arrives_and_wins_over_the_callers() {
        let args = ["-c", "printf %s \"$MESHWORK_JOB_SECRET\""].map(OsString::from);
        let mut worker = worker(OsStr::new("sh"), &args);
        worker.variables = vec![(JobSecret::ENV.into(), "another".into())];
        let mut shell = start(&worker);
        let _held_open = shell.stdin.take();
        let ended = shell.wait_with_output().unwrap();
        assert_eq!(ended.stdout, worker.secret.to_hex().as_bytes());
    }

    #[test]
    fn a_signal_reaches_the_worker_and_all_that_it_started() {
        // SIGINT becomes SIGTERM where `env` cannot make it act again.
        let script = "trap 'echo told; exit 5' TERM INT; sleep 1000 & echo ready; wait";
        let args = ["-c", script].map(OsString::from);
        for signal in [Signal::TERMINATE, Signal::INTERRUPT] {
            let mut shell = start(&worker(OsStr::new("sh"), &args));
            let mut stdout = BufReader::new(shell.stdout.take().unwrap());
            assert_eq!(line(&mut stdout), "ready");
            let signal = signal_line(signal).unwrap();
            shell
                .stdin
                .as_mut()
                .unwrap()
                .write_all(signal.as_bytes())
                .unwrap();
            assert_eq!(line(&mut stdout), "told");
            // The rest of the output ends: nothing holds it open.
            stdout.read_to_string(&mut String::new()).unwrap();
            assert_eq!(shell.wait().unwrap().code(), Some(5));
        }
    }

    #[test]
    fn a_program_whose_path_could_be_a_variable_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a=b");
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let args = ["-c", "echo \"$1\"; exit 7", "sh", "c=d"].map(OsString::from);
        let mut shell = start(&worker(program.as_os_str(), &args));
        let _held_open = shell.stdin.take();
        let ended = shell.wait_with_output().unwrap();
        assert_eq!(ended.stdout, b"c=d\n");
        assert_eq!(ended.status.code(), Some(7));
    }

    #[test]
    fn a_worker_that_nobody_watches_any_more_is_ended() {
        let script = "trap '' TERM; echo $$; exec sleep 1000";
        let args = ["-c", script].map(OsString::from);
        let mut lonely = worker(OsStr::new("sh"), &args);
        lonely.grace = Duration::ZERO;
        let mut shell = start(&lonely);
        line(&mut BufReader::new(shell.stdout.take().unwrap()));
        drop(shell.stdin.take());
        let ended = shell.wait().unwrap();
        assert_eq!((ended.code(), ended.signal()), (Some(137), None));
    }

    #[test]
    fn a_variable_that_no_shell_can_set_or_that_it_sets_itself_is_refused() {
        let mut worker = worker(OsStr::new("true"), &[]);
        for name in ["A-B", "", "1A", "A=B", "UID", "RANDOM"] {
            worker.variables = vec![(name.into(), "x".into())];
            let refused = worker.orders().err();
            assert!(
                matches!(refused, Some(LaunchError::RemoteVariable { .. })),
                "{name}"
            );
        }
    }
}
