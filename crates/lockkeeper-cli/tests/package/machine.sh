# Runs the script $1 as root of a machine that looks like this one, with $2 as /package.deb.
# Called within a mount namespace: what is mounted here is unmounted with the last process in it.
folder=$(mktemp -d)
# The empty folder is all that is left of it outside.
trap 'umount -l "$folder" && rmdir "$folder"' EXIT
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay \
    -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
mount --rbind /proc "$folder/root/proc"
mount --rbind /dev "$folder/root/dev"
if [ -f "$2" ]; then
    cp "$2" "$folder/root/package.deb"
fi
chroot "$folder/root" /bin/sh -eu -c "$1"
