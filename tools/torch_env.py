#!/usr/bin/env python3
"""Makes a virtual environment with PyTorch that computes on the CPU, out of the CUDA build, which is the only one for Linux in PyPI.

    tools/torch_env.py DIRECTORY [VERSION]

`pip install torch` also downloads 2.5 GB of CUDA libraries. Two small ones run when torch is imported; the others are
only linked with, and only a GPU calls them. Here each of these is a shared library whose functions are empty: it carries the
names and symbol versions that the loader asks for. Needs cc and readelf. Does nothing if DIRECTORY has that version already.
"""

import pathlib
import re
import subprocess
import sys
import venv

VERSION = "2.15.0"
# Imported by torch on any machine; its metadata names the others, which are left out.
DEPENDENCIES = ["filelock", "typing_extensions", "setuptools", "sympy", "networkx", "jinja2", "fsspec", "numpy", "packaging"]
# They run at import: the runtime registers kernels, the profiler its hooks. In the version that torch's metadata asks for.
RUN_AT_IMPORT = "cudart,cupti"
TOOLKIT = re.compile(r"cuda-toolkit\[[^]]*\](==[0-9.]+)")
NEEDED = re.compile(r"Shared library: \[(.+)\]")
UNDEFINED = re.compile(r" (?:NOTYPE|FUNC|OBJECT) +GLOBAL +DEFAULT +UND (\w+)(?:@(\S+))?")
VERSIONS_OF = re.compile(r"Version: 1 +File: (\S+) ")
VERSION_NAME = re.compile(r"Name: (\S+) ")
CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
CUDA_NAME = re.compile(r"cu|nv|nccl")


def main(directory: pathlib.Path, version: str):
    done = directory / "torch-version"
    if done.exists() and done.read_text() == version:
        return
    venv.create(directory, clear=True, with_pip=True)
    pip(directory, "--no-deps", f"torch=={version}")
    site = next((directory / "lib").glob("python3*/site-packages"))
    metadata = next(site.glob("torch-*.dist-info/METADATA")).read_text()
    toolkit = [f"cuda-toolkit[{RUN_AT_IMPORT}]{version}" for version in TOOLKIT.findall(metadata)]
    pip(directory, *DEPENDENCIES, *toolkit)
    make_empty_libraries(site)
    subprocess.run([directory / "bin/python3", "-c", "import torch, torch.distributed.checkpoint"], check=True)
    done.write_text(version)


def pip(directory: pathlib.Path, *packages: str):
    subprocess.run(
        [directory / "bin/pip", "install", "-q", "--disable-pip-version-check", *packages],
        check=True, stdin=subprocess.DEVNULL,
    )


def make_empty_libraries(site: pathlib.Path):
    """Beside torch's own libraries, where their search path ends: an empty one for each that is needed and not there."""
    folder = site / "torch/lib"
    own = list(folder.glob("*.so*"))
    there = {path.name for path in [*own, *site.glob("nvidia/**/*.so*")]}
    needed: set[str] = set()
    # Of each library the names of its symbol versions, and of each version its symbols.
    versions: dict[str, set[str]] = {}
    symbols: dict[str, set[str]] = {}
    for library in own:
        text = subprocess.run(["readelf", "-dVW", "--dyn-syms", library], check=True, capture_output=True, text=True).stdout
        needed.update(NEEDED.findall(text))
        name = ""
        for line in text.splitlines():
            if found := VERSIONS_OF.search(line):
                name = found[1]
            elif name and "Flags:" in line and (found := VERSION_NAME.search(line)):
                versions.setdefault(name, set()).add(found[1])
            elif found := UNDEFINED.search(line):
                symbols.setdefault(found[2] or "", set()).add(found[1])
    missing = sorted(name for name in needed if CUDA_LIBRARY.match(name) and name not in there)
    # The loader looks for a symbol without a version in every library: the first defines them all.
    plain = {symbol for symbol in symbols.get("", ()) if CUDA_NAME.match(symbol)}
    for name in missing:
        make_library(folder / name, {version: symbols.get(version, set()) for version in versions.get(name, ())}, plain)
        plain = set()


def make_library(path: pathlib.Path, versions: dict[str, set[str]], plain: set[str]):
    script, source = path.with_suffix(".map"), path.with_suffix(".c")
    script.write_text("".join(f"{version} {{ {''.join(f'{symbol}; ' for symbol in symbols)}}};\n" for version, symbols in versions.items()))
    source.write_text("".join(f"char {symbol}[64];\n" for symbol in plain.union(*versions.values())))
    subprocess.run(
        ["cc", "-shared", "-nostdlib", "-w", source, "-o", path, f"-Wl,-soname,{path.name}",
         *([f"-Wl,--version-script,{script}"] if versions else [])],
        check=True,
    )
    script.unlink()
    source.unlink()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        main(pathlib.Path(sys.argv[1]), *(sys.argv[2:] or [VERSION]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"tools/torch_env.py: no PyTorch: {error}")
