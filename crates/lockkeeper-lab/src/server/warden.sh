# Waits until the lab's process is gone, however that came about; then ends what it left.
trap '' HUP INT QUIT TERM
root=$1

begun() {
    shift 19
    begun=$1
}

# Stops each process before it looks for its children, so that none is born unseen. The group is
# not enough: PostgreSQL gives every process of its own one.
fell() {
    kill -STOP "$1" 2>/dev/null
    for child in $(cat "/proc/$1"/task/*/children 2>/dev/null); do
        fell "$child"
    done
    kill -KILL "$1" 2>/dev/null
}

while read -r _; do :; done
rm -f "$root/open"

each_mount() {
    while read -r _ mount _; do
        mount=$(printf '%b' "$mount")
        case $mount in "$root"/*) "$@" "$mount" ;; esac
    done </proc/mounts
}

# Nothing can be killed that waits for a disk which hangs.
each_mount fsfreeze --unfreeze

for file in "$root"/*/pid; do
    read -r pid start 2>/dev/null <"$file" || continue
    if read -r stat 2>/dev/null <"/proc/$pid/stat"; then
        begun ${stat##*) }
        # The number went on to a stranger.
        [ "$begun" = "$start" ] || continue
        fell "$pid"
    fi
    kill -KILL "-$pid" 2>/dev/null
done

each_mount umount -l

# What was just killed may still be writing.
tries=0
until rm -rf "$root" 2>/dev/null || [ "$tries" -ge 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
