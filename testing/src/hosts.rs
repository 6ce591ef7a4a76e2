//! Two hosts, which are network namespaces of this one.

use std::process::Command;

use crate::Need;

/// What runs the program that it is given on both, with `RANK` 0 here at 10.7.0.1 and 1 at 10.7.0.2;
/// nothing where that cannot be, which is said.
///
/// # Panics
/// Where it is required and cannot be.
#[must_use]
#[track_caller]
pub fn two_hosts() -> Option<Command> {
    let works = Command::new("unshare")
        .args(["--net", "ip", "link"])
        .output();
    let works = works.map_err(|error| format!("unshare does not start: {error}"));
    let works = works.and_then(|ended| match ended.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned()),
    });
    Need::Namespaces.or_skip(works)?;
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-euc", TWO_HOSTS, "sh"]);
    Some(command)
}

/// Runs a program as rank 0 here, and as rank 1 in another namespace, with a link between them.
const TWO_HOSTS: &str = r#"
folder=$(mktemp -d); trap 'rm -r "$folder"' EXIT
mkfifo "$folder/go"
unshare --net sh -euc '
    read -r _ <"$1/go"; shift
    ip link set lo up; ip addr add 10.7.0.2/24 dev far; ip link set far up
    RANK=1 exec "$@"
' sh "$folder" "$@" &
here=$(readlink /proc/$$/ns/net)
while [ "$(readlink /proc/$!/ns/net)" = "$here" ]; do :; done
ip link set lo up
ip link add near type veth peer name far netns $!
ip addr add 10.7.0.1/24 dev near; ip link set near up
echo >"$folder/go"
status=0
RANK=0 "$@" || status=$?
wait $! || status=$?
exit $status
"#;
