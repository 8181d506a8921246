"""What the lab needs of the host: programs, the binary, and a cache.

A missing package is installed where that can be done (root on Debian); what stays missing is a reason to
leave the lab out, said aloud: `Missing` carries it.
"""

import glob
import os
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))

# Program, and the Debian package that brings it. Most of them are copied into the guest.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86", "make": "make", "strip": "binutils", "busybox": "busybox-static",
    "mdadm": "mdadm", "lvm": "lvm2", "mkfs.xfs": "xfsprogs", "mkfs.ext4": "e2fsprogs", "mkfs.btrfs": "btrfs-progs",
    "mkfs.f2fs": "f2fs-tools", "wipefs": "util-linux", "blkdiscard": "util-linux", "blkzone": "util-linux", "cpio": "cpio", "zstd": "zstd",
    "ip": "iproute2", "strace": "strace",
    "depmod": "kmod", "ldd": "libc-bin", "dpkg": "dpkg", "apt-get": "apt",
}

# Programs of packages that would start services if they were installed: these are only unpacked, into the cache.
UNPACKED = {"rpc.nfsd": "nfs-kernel-server", "exportfs": "nfs-kernel-server", "rpc.mountd": "nfs-kernel-server", "mount.nfs": "nfs-common", "rpcbind": "rpcbind"}
UNPACKED_LIBRARIES = ["libwrap0", "libtirpc3", "libnsl2", "libkeyutils1"]


class Missing(Exception):
    """The lab cannot run here; the message says what it would take."""


def which(program):
    """Where a program is, system directories included, which users often have not in PATH."""
    unpacked = unpacked_dir()
    return shutil.which(program, path=os.environ.get("PATH", "") + f":/usr/sbin:/sbin:/usr/bin:/bin:{unpacked}/usr/sbin:{unpacked}/sbin")


def run(*command, **options):
    """Runs a program to its end and returns what it printed; its own words stand in the error."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def programs():
    """Sees to it that all programs are there."""
    installed()
    if any(which(name) is None for name in UNPACKED):
        unpack()


def installed():
    """Installs those of `PROGRAMS` that are missing."""
    missing = [name for name in PROGRAMS if which(name) is None]
    if not missing:
        return
    packages = sorted({PROGRAMS[name] for name in missing})
    if os.geteuid() != 0 or which("apt-get") is None:
        raise Missing(f"not installed: {', '.join(missing)} (Debian packages {' '.join(packages)})")
    print(f"lab: installing {' '.join(packages)}", flush=True)
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    try:
        run("apt-get", "update", "-qq", env=quiet)
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, env=quiet)
    except RuntimeError as error:
        raise Missing(f"could not install {' '.join(packages)}: {error}") from error
    still = [name for name in missing if which(name) is None]
    if still:
        raise Missing(f"still not there after installing {' '.join(packages)}: {', '.join(still)}")


def unpacked_dir():
    return os.path.join(cache_dir(), "packages")


def unpack():
    """Downloads the packages of `UNPACKED` and unpacks them into the cache, all or none."""
    packages = sorted(set(UNPACKED.values())) + UNPACKED_LIBRARIES
    print(f"lab: fetching {' '.join(packages)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="flashwright-lab-", dir=cache_dir()) as scratch:
        # apt drops its privileges for downloads, where its user may write.
        os.chmod(scratch, 0o777)
        try:
            run("apt-get", "download", "-qq", *packages, cwd=scratch)
        except RuntimeError as error:
            raise Missing(f"cannot download {' '.join(packages)}: {error}") from error
        unpacked = os.path.join(scratch, "unpacked")
        for archive in glob.glob(os.path.join(scratch, "*.deb")):
            run("dpkg", "-x", archive, unpacked)
        shutil.rmtree(unpacked_dir(), ignore_errors=True)
        os.rename(unpacked, unpacked_dir())


def cache_dir():
    """Where images are kept between runs, outside the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(base, "flashwright-lab")
    os.makedirs(path, exist_ok=True)
    return path


def binary():
    """Builds the binary that the tests use as well, and returns its path. Cargo decides whether there is anything to do."""
    # Not a quiet build: the first one takes minutes.
    if subprocess.run(["make", "--no-print-directory", "build-debug"], cwd=ROOT, stdin=subprocess.DEVNULL).returncode != 0:
        raise SystemExit("lab: the binary does not build")
    return os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "debug", "flashwright")


def libraries(program):
    """Paths of the libraries that a program is linked with; none for a static one."""
    unpacked = unpacked_dir()
    there = dict(os.environ, LD_LIBRARY_PATH=f"{unpacked}/usr/lib/x86_64-linux-gnu:{unpacked}/lib/x86_64-linux-gnu")
    listing = subprocess.run(["ldd", program], env=there, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return [word for word in listing.split() if word.startswith("/") and os.path.isfile(word) and os.path.realpath(word) != os.path.realpath(program)]
