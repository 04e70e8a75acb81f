#!/bin/busybox sh
# This is the first program of the machine. It mounts the host's files as the machine's own, without changing them, and
# starts a shell that runs the session on them.
set -e
bb=/bin/busybox
$bb mkdir -p /proc /dev /host /disk /root
$bb mount -t proc proc /proc
$bb mount -t devtmpfs dev /dev
for module in /modules/*; do $bb insmod "$module"; done

share=trans=virtio,version=9p2000.L,msize=512000
$bb mount -t 9p -o ro,cache=loose,$share host /host
$bb mount -t ext4 /dev/vda /disk
$bb mkdir -p /disk/upper/usr/lib /disk/upper/usr/share /disk/work /disk/data

# The template of a sandbox is all of /usr, and each file in it costs a request to the host. This hides all but what the
# tests need: in an overlay, a character device 0:0 hides a name of the layer below.
hide() {
    for path in /host/$1/*; do
        name=${path##*/}
        case " $2 " in *" $name "*) ;; *) $bb mknod "/disk/upper/$1/$name" c 0 0 ;; esac
    done
}
hide usr "bin sbin lib lib64 share"
hide usr/lib "x86_64-linux-gnu $(cd /host/usr/lib && echo python3.*) locale os-release ssl"
hide usr/share "nodejs perl perl5 terminfo"

$bb mount -t overlay -o lowerdir=/host,upperdir=/disk/upper,workdir=/disk/work files /root
$bb umount /proc
$bb mount -t proc proc /root/proc
$bb mount -t sysfs sys /root/sys
$bb mount -t cgroup2 cgroup /root/sys/fs/cgroup
$bb mount --move /dev /root/dev
$bb mkdir -p /root/dev/pts /root/dev/shm /root/machine/data /root/machine/exchange
$bb mount -t devpts -o mode=620,ptmxmode=666 pts /root/dev/pts
$bb mount -t tmpfs shm /root/dev/shm
$bb mount -t tmpfs run /root/run
$bb mount --bind /disk/data /root/machine/data
$bb mount -t 9p -o $share exchange /root/machine/exchange
$bb ip link set lo up
$bb stty raw -echo </root/dev/ttyS1
exec $bb switch_root /root /bin/sh /machine/exchange/session </root/dev/ttyS1 >/root/dev/ttyS1 2>&1
