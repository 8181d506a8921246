"""Kernel and initramfs of the guest, made once and kept.

The kernel is Debian's own package for 6.1, cloud flavour, unpacked and booted directly: NVMe and ext4 are
built in, md, dm, XFS, btrfs and the schedulers come as modules, f2fs is absent. The initramfs holds
busybox, the tools that layouts are made with, the libraries they need, and those modules. Both are kept in
the cache under a name drawn from everything that went in, so a change of any of it makes a new image, and
a second run finds the old one within a second.
"""

import glob
import hashlib
import os
import shutil
import subprocess
import tempfile
import time

import kit

FLAVOUR = "cloud-amd64"
# Loaded by init.
FOR_DISKS = ["virtio_pci", "virtio_blk", "virtio_console"]
# Loaded by the kernel when asked for; dependencies follow by themselves.
ON_DEMAND = ["raid0", "raid1", "md-mod", "dm-mod", "dm-mirror", "dm-snapshot", "xfs", "btrfs", "f2fs", "bfq", "kyber-iosched", "null_blk", "loop",
             "crc32c-intel", "crc32c_generic", "libcrc32c", "nfs", "nfsv3", "nfsv4", "nfsd", "md5", "veth"]
# Programs copied with their libraries. busybox gives the rest, and yields where one of these stands.
TOOLS = ["mdadm", "lvm", "dmsetup", "mkfs.xfs", "xfs_io", "mkfs.ext4", "tune2fs", "dumpe2fs", "mkfs.btrfs", "btrfs", "mkfs.f2fs",
         "wipefs", "blkid", "blkdiscard", "blkzone", "lsblk", "findmnt", "mount", "umount", "flock",
         "ip", "unshare", "nsenter", "rpcbind", "rpc.mountd", "rpc.nfsd", "exportfs", "mount.nfs", "strace"]
LVM_NAMES = ["pvcreate", "pvremove", "pvs", "vgcreate", "vgremove", "vgchange", "vgs", "lvcreate", "lvremove", "lvchange", "lvs", "vgscan", "pvscan"]
EXT_NAMES = ["mke2fs"]
NFS_NAMES = ["mount.nfs4", "umount.nfs", "umount.nfs4"]
# What sunrpc's programs look names up in.
DATABASES = ["mke2fs.conf", "netconfig", "protocols", "rpc", "services"]
KEPT_S = 7 * 24 * 3600  # an image that nobody has used for so long goes


def build():
    """Paths of kernel and initramfs, made if the cache has none that fit."""
    cache = kit.cache_dir()
    kernel_dir, release = kernel(cache)
    name = os.path.join(cache, f"initramfs-{release}-{fingerprint(release)}.zst")
    if not os.path.exists(name):
        print("lab: making the initramfs", flush=True)
        with tempfile.TemporaryDirectory(prefix="flashwright-lab-") as scratch:
            tree = os.path.join(scratch, "root")
            plant(tree, kernel_dir, release)
            pack(tree, name)
        for old in glob.glob(os.path.join(cache, "initramfs-*.zst")):
            # One that was used of late may be another tree's, whose machines boot from it.
            if time.time() - os.path.getmtime(old) > KEPT_S:
                os.unlink(old)
    os.utime(name)
    return os.path.join(kernel_dir, "boot", f"vmlinuz-{release}"), name


def kernel(cache):
    """The unpacked kernel package: its directory and its release. What the cache holds is used, however old."""
    kept = sorted(glob.glob(os.path.join(cache, "kernel-*", "boot", "vmlinuz-*")))
    if not kept:
        print("lab: fetching the guest's kernel", flush=True)
        fetch_kernel(cache)
        kept = sorted(glob.glob(os.path.join(cache, "kernel-*", "boot", "vmlinuz-*")))
    path = kept[-1]
    return os.path.dirname(os.path.dirname(path)), os.path.basename(path)[len("vmlinuz-"):]


def fetch_kernel(cache):
    """Downloads the newest kernel package that apt knows of, unpacks it, and writes its modules' index."""
    names = kit.run("apt-cache", "search", "--names-only", rf"^linux-image-6\.1\.0-[0-9]+-{FLAVOUR}$").split("\n")
    names = [line.split()[0] for line in names if line.strip()]
    if not names:
        raise kit.Missing(f"apt knows no package linux-image-6.1.0-*-{FLAVOUR} (apt-get update?)")
    package = max(names, key=lambda name: int(name.split("-")[3]))
    with tempfile.TemporaryDirectory(prefix="flashwright-lab-", dir=cache) as scratch:
        try:
            # apt drops its privileges for downloads, where its user may write.
            os.chmod(scratch, 0o777)
            kit.run("apt-get", "download", "-qq", package, cwd=scratch)
        except RuntimeError as error:
            raise kit.Missing(f"cannot download {package}: {error}") from error
        archive = glob.glob(os.path.join(scratch, "*.deb"))[0]
        unpacked = os.path.join(scratch, "unpacked")
        kit.run("dpkg", "-x", archive, unpacked)
        release = os.path.basename(glob.glob(os.path.join(unpacked, "boot", "vmlinuz-*"))[0])[len("vmlinuz-"):]
        kit.run(kit.which("depmod"), "-b", unpacked, release)
        # Whole or not at all: a cut in the middle leaves a directory that nobody looks at.
        os.rename(unpacked, os.path.join(cache, f"kernel-{release}"))


def fingerprint(release):
    """A word that changes with everything that goes into the initramfs."""
    state = hashlib.sha256(release.encode())
    files = [os.path.join(kit.HERE, "image.py"), kit.which("busybox")]
    files += sorted(glob.glob(os.path.join(kit.HERE, "guest", "*")))
    files += [path for path in map(kit.which, TOOLS) if path]
    # The loader and the C library, which have to be those that come with the binary.
    files += kit.libraries(kit.which("mkfs.ext4"))
    for path in files:
        # Not where this tree lies: another one beside it has the same image.
        state.update(os.path.basename(path).encode())
        with open(path, "rb") as file:
            state.update(file.read())
    return state.hexdigest()[:16]


def plant(tree, kernel_dir, release):
    """Lays out the guest's root file system under `tree`."""
    for directory in ("bin", "sbin", "usr/bin", "usr/sbin", "etc/lvm", "proc", "sys", "dev", "root", "var/lib", "mnt"):
        os.makedirs(os.path.join(tree, directory))
    busybox(tree)
    for tool in TOOLS:
        copy_with_libraries(tree, tool)
    alias(tree, "lvm", LVM_NAMES)
    alias(tree, "mkfs.ext4", EXT_NAMES)
    alias(tree, "mount.nfs", NFS_NAMES)
    copy_modules(tree, kernel_dir, release)
    for name in ("init", "agent"):
        shutil.copy(os.path.join(kit.HERE, "guest", name), os.path.join(tree, name))
        os.chmod(os.path.join(tree, name), 0o755)
    shutil.copy(os.path.join(kit.HERE, "guest", "lvm.conf"), os.path.join(tree, "etc", "lvm", "lvm.conf"))
    for name, text in (("passwd", "root:x:0:0:root:/tmp:/bin/sh\n_rpc:x:106:0:rpcbind:/run/rpcbind:/bin/false\n"), ("group", "root:x:0:\n"),
                       ("hosts", "127.0.0.1 localhost\n"), ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"), ("os-release", 'NAME="flashwright lab"\n')):
        with open(os.path.join(tree, "etc", name), "w") as file:
            file.write(text)
    for name in DATABASES:
        if os.path.exists(f"/etc/{name}"):
            shutil.copy(f"/etc/{name}", os.path.join(tree, "etc", name))


def busybox(tree):
    """busybox under each of its names."""
    path = kit.which("busybox")
    shutil.copy(path, os.path.join(tree, "bin", "busybox"))
    for name in kit.run(path, "--list").split():
        if name != "busybox":
            os.symlink("/bin/busybox", os.path.join(tree, "sbin" if name in ("modprobe", "depmod", "insmod") else "bin", name))


def copy_with_libraries(tree, tool):
    """One program at its own place, and the libraries that the dynamic loader would want."""
    path = kit.which(tool)
    if path is None:
        raise kit.Missing(f"{tool} is not installed")
    destination = os.path.join(tree, "usr/sbin", tool)
    shutil.copy(os.path.realpath(path), destination)
    os.chmod(destination, 0o755)
    for library in kit.libraries(path):
        there = os.path.join(tree, library.removeprefix(kit.unpacked_dir()).lstrip("/"))
        if not os.path.exists(there):
            os.makedirs(os.path.dirname(there), exist_ok=True)
            shutil.copy(os.path.realpath(library), there)


def alias(tree, tool, names):
    """Further names under which a program does other things."""
    for name in names:
        link = os.path.join(tree, "usr/sbin", name)
        if not os.path.lexists(link):
            os.symlink(tool, link)


def copy_modules(tree, kernel_dir, release):
    """The modules named above with all they depend on, and an index over just these."""
    source = os.path.join(kernel_dir, "lib", "modules", release)
    goal = os.path.join(tree, "lib", "modules", release)
    needs = {}
    with open(os.path.join(source, "modules.dep")) as file:
        for line in file:
            module, _, rest = line.partition(":")
            needs[module] = rest.split()
    stem = lambda path: os.path.basename(path).split(".")[0].replace("-", "_")
    wanted = {name.replace("-", "_") for name in FOR_DISKS + ON_DEMAND}
    chosen = {module for module in needs if stem(module) in wanted}
    chosen |= {other for module in chosen for other in needs[module]}
    for module in chosen:
        os.makedirs(os.path.dirname(os.path.join(goal, module)), exist_ok=True)
        shutil.copy(os.path.join(source, module), os.path.join(goal, module))
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(os.path.join(source, name), os.path.join(goal, name))
    kit.run(kit.which("depmod"), "-b", tree, release)


def pack(tree, name):
    """The tree as a compressed newc archive, which appears whole or not at all."""
    listing = kit.run("find", ".", cwd=tree)
    archive = subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=tree, input=listing.encode(), stdout=subprocess.PIPE, check=True)
    partial = f"{name}.{os.getpid()}"
    with open(partial, "wb") as file:
        subprocess.run(["zstd", "-q", "-9", "-T0", "-c"], input=archive.stdout, stdout=file, check=True)
    os.rename(partial, name)
