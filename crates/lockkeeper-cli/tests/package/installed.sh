# Installs the package, has two users contend for a lock in the machine-wide store, and purges it.
# Runs as root of a machine that is thrown away afterwards.
unset LOCKKEEPER_STORE LOCKKEEPER_OWNER
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
store=sqlite:/var/lib/lockkeeper/locks.db

wrong() {
    echo "WRONG: $*" >&2
    exit 1
}

# The exit code of a command that may fail.
code_of() {
    code=0
    "$@" || code=$?
}

if [ -e /usr/bin/lockkeeper ]; then
    dpkg --purge lockkeeper >/dev/null
fi

dpkg --install /package.deb >/dev/null
# Small images leave out what is in /usr/share.
verified=$(dpkg --verify lockkeeper | grep -v ' /usr/share/' || true)
[ -z "$verified" ] || wrong "installed otherwise than packed: $verified"
[ "$(stat -c '%a %U %G' /var/lib/lockkeeper)" = '2770 root lockkeeper' ] || wrong "the folder"
[ "$(stat -c '%a %U %G' /var/lib/lockkeeper/locks.db)" = '660 root lockkeeper' ] || wrong "the file"
[ "$(command -v lockkeeper)" = /usr/bin/lockkeeper ] || wrong "the command is not on the PATH"
bash -n /usr/share/bash-completion/completions/lockkeeper

useradd --create-home --groups lockkeeper anna
useradd --create-home --groups lockkeeper ben
useradd --create-home stranger
as() {
    user=$1
    shift
    runuser -u "$user" -- env HOME="/home/$user" "$@"
}

# Anna holds the lock until the file is gone.
touch /tmp/held
as anna lockkeeper run --store $store nightly -- \
    sh -c 'touch /tmp/anna; while [ -e /tmp/held ]; do sleep 0.1; done' &
anna=$!
while [ ! -e /tmp/anna ]; do
    kill -0 $anna 2>/dev/null || wrong "anna could not lock"
    sleep 0.1
done

code_of as ben lockkeeper run -n --store $store nightly -- echo both 2>/tmp/said
[ $code = 75 ] || wrong "ben's exit code is $code, not 75: $(cat /tmp/said)"
grep -q 'anna@' /tmp/said || wrong "ben is not told who holds it: $(cat /tmp/said)"
as ben lockkeeper ls --store $store | grep -q '^nightly .*anna@' || wrong "ben does not see the holder"

code_of as stranger lockkeeper run -n --store $store nightly -- echo both 2>/tmp/said
[ $code = 77 ] || wrong "a stranger's exit code is $code, not 77: $(cat /tmp/said)"

# An upgrade leaves the locks alone.
dpkg --install /package.deb >/dev/null
code_of as ben lockkeeper run -n --store $store nightly -- echo both 2>/tmp/said
[ $code = 75 ] || wrong "after an upgrade ben's exit code is $code, not 75: $(cat /tmp/said)"

# Ben waits, and has it when anna is done.
as ben lockkeeper run -w 60s --store $store nightly -- touch /tmp/ben &
ben=$!
rm /tmp/held
wait $anna || wrong "anna's command failed"
wait $ben || wrong "ben did not get it"
[ "$(stat -c %U /tmp/ben)" = ben ] || wrong "ben's command did not run as ben"

files=$(dpkg --listfiles lockkeeper)
dpkg --remove lockkeeper >/dev/null
[ ! -e /usr/bin/lockkeeper ] || wrong "the command is still there"
[ -e /var/lib/lockkeeper/locks.db ] || wrong "removing took the store along"
dpkg --purge lockkeeper >/dev/null
[ ! -e /var/lib/lockkeeper ] || wrong "purging left the store"
for file in $files; do
    [ ! -f "$file" ] || wrong "purging left $file"
done

# The group and the store are there without a group beforehand, and again after a purge.
dpkg --install /package.deb >/dev/null
[ -e /var/lib/lockkeeper/locks.db ] || wrong "it cannot be installed again"
echo "everything holds"
