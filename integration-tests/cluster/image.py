"""An OCI image archive from the binaries of a target folder, without a registry, a daemon or a base image.

What `images/Dockerfile` makes is static. These need not be: the loader and the libraries that a binary names are laid beside it, at
the places where it looks for them.
"""

import gzip
import hashlib
import io
import json
import os
import re
import struct
import subprocess
import tarfile
import tempfile
from pathlib import Path

NOBODY = 65532
BINARIES = ("firth", "firth-control-plane", "firth-data-plane", "witness")
# As the Dockerfile's `setcap cap_net_bind_service=+ep`: revision 2 with the effective bit, bit 10 permitted, nothing inheritable.
BIND_SERVICE = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)


def libraries(binary):
    """Where a binary looks for its loader and libraries; none where it is static."""
    said = subprocess.run(["ldd", str(binary)], capture_output=True, text=True)
    if said.returncode != 0:
        if "not a dynamic executable" in said.stdout + said.stderr:
            return []
        raise RuntimeError(f"ldd {binary}: {said.stderr}")
    if "not found" in said.stdout:
        raise RuntimeError(f"{binary} lacks a library: {said.stdout}")
    return sorted(set(re.findall(r"(/\S+) \(0x", said.stdout)))


def layer(binaries):
    """One layer: binaries at the root, and what they load."""
    files = {}
    for name in BINARIES:
        path = Path(binaries) / name
        with tempfile.NamedTemporaryFile() as stripped:
            # Symbols of a debug build are nine tenths of it.
            subprocess.run(["strip", "--strip-debug", "-o", stripped.name, str(path)], check=True)
            files[name] = Path(stripped.name).read_bytes()
        for library in libraries(path):
            files[library.lstrip("/")] = Path(os.path.realpath(library)).read_bytes()
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
        for folder in sorted(folders):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            if name == "firth-data-plane":
                # PAX has text: bytes above 127 would not survive, and there are none.
                info.pax_headers = {"SCHILY.xattr.security.capability": BIND_SERVICE.decode("ascii")}
            tar.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def archive(binaries, repository, to):
    """Writes the archive; returns the image's tag, which says what is in it."""
    blobs = {}

    def blob(content):
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    raw = layer(binaries)
    digest = hashlib.sha256(raw).hexdigest()
    packed = blob(gzip.compress(raw, 1, mtime=0))
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "config": {"User": f"{NOBODY}:{NOBODY}", "Entrypoint": ["/firth"], "Cmd": ["--help"], "Env": ["PATH=/"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    kind = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": {"mediaType": f"{kind}.config.v1+json", **blob(json.dumps(config).encode())},
        "layers": [{"mediaType": f"{kind}.layer.v1.tar+gzip", **packed}],
    }
    tag = digest[:12]
    named = {"io.containerd.image.name": f"{repository}:{tag}", "org.opencontainers.image.ref.name": tag}
    top = {"mediaType": f"{kind}.manifest.v1+json", "annotations": named, **blob(json.dumps(manifest).encode())}
    index = {"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json", "manifests": [top]}
    first = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    with tarfile.open(to, "w") as tar:
        for name, content in {**first, **blobs}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return tag
