#!/usr/bin/env bash
# Builds kube-apiserver from Debian's source package, once, into the user's cache, where the tests
# find it. Needs apt, root for installing what is missing, 3 GB of disk and some minutes.
# Debian's patches are left out: this is a server for tests. DEBIAN_MIRROR names another mirror.
set -euo pipefail

cache="${XDG_CACHE_HOME:-$HOME/.cache}/meshwork"
target="$cache/kube-apiserver"
if [[ -x $target ]]; then
    echo "$target is there already"
    exit 0
fi

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"

apt-get install -y --no-install-recommends gcc golang-go jq make rsync xz-utils

# A source list of our own leaves the system's as they are.
. /etc/os-release
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
mkdir lists
echo "deb-src [trusted=yes] $mirror $VERSION_CODENAME main" >sources.list
own=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$work/lists")
apt-get "${own[@]}" update
apt-get "${own[@]}" source --download-only kubernetes
tar -xf kubernetes_*.orig.tar.*
tree=$(find . -maxdepth 1 -type d -name 'kubernetes-*' -print -quit)
version=${tree#./kubernetes-}
IFS=. read -r major minor _ <<<"$version"

# The version cannot be asked of git here.
cat >version.sh <<END
KUBE_GIT_COMMIT='unknown'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v$version'
KUBE_GIT_MAJOR='$major'
KUBE_GIT_MINOR='$minor'
END
mkdir -p gopath/src/k8s.io home
mv "$tree" gopath/src/k8s.io/kubernetes
cd gopath/src/k8s.io/kubernetes
env GOPATH="$work/gopath" GOCACHE="$work/gocache" HOME="$work/home" CGO_ENABLED=0 \
    GOTOOLCHAIN=local KUBE_GIT_VERSION_FILE="$work/version.sh" \
    make WHAT=cmd/kube-apiserver
mkdir -p "$cache"
install -m 755 _output/local/bin/linux/*/kube-apiserver "$target.new"
mv "$target.new" "$target"
echo "$target"
