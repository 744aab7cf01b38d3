"""What the run does with kubectl, helm, firth and grpcurl, as a person would type it."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

NAMESPACE, SHOP, RELEASE = "firth-run", "firth-run-shop", "firth"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


class Failed(Exception):
    """A step did not come out as it should."""


def binaries():
    """The folder of Firth's binaries."""
    return Path(os.environ.get("FIRTH_BINARIES") or Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "debug")


def tool(name, variable, places):
    """A tool that a variable names, that is on the path, or that our other tests have obtained."""
    found = os.environ.get(variable) or shutil.which(name) or next(map(str, sorted(CACHE.glob(places))), None)
    if not found:
        raise Failed(f"no {name}: run ./test once, which obtains one, or set {variable}")
    return found


def run(*command, stdin=None, within=300):
    """Standard output of a command that succeeds."""
    done = subprocess.run([str(word) for word in command], input=stdin, capture_output=True, text=True, timeout=within)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def kubectl(*words, namespace=NAMESPACE, **how):
    return run("kubectl", "--namespace", namespace, *words, **how)


def get(*words, namespace=NAMESPACE):
    return json.loads(kubectl("get", *words, "-o", "json", namespace=namespace))


def helm(*words):
    binary = tool("helm", "HELM", "firth-charts/*/helm")
    return run(binary, *words, "--namespace", NAMESPACE)


def rolled_out(what, namespace=NAMESPACE, within=300):
    kubectl("rollout", "status", what, f"--timeout={within}s", namespace=namespace, within=within + 10)


def eventually(what, check, within=60):
    """What `check` gives, once it gives anything."""
    until = time.monotonic() + within
    while not (found := check()):
        if time.monotonic() > until:
            raise Failed(f"{what}: not within {within} s")
        time.sleep(0.3)
    return found


def pods(component):
    """Address by name, of those that have one."""
    listed = get("pods", "-l", f"app.kubernetes.io/component={component}")["items"]
    return {it["metadata"]["name"]: it["status"]["podIP"] for it in listed if it["status"].get("podIP")}


def clean():
    """Takes away what this run makes, or one before it left."""
    if json.loads(helm("list", "-o", "json")):
        helm("uninstall", RELEASE, "--wait")
    run("kubectl", "delete", "namespace", NAMESPACE, SHOP, "--ignore-not-found", "--timeout=180s")


class Planes:
    """Firth, asked through `kubectl port-forward`, as one role."""

    def __init__(self, server, identity):
        self.server, self.identity = server, identity

    def firth(self, *words):
        return run(binaries() / "firth", *words, "--server", f"https://{self.server}", "--identity", self.identity)

    def login(self, role):
        said = self.firth(
            "login", "--namespace", NAMESPACE, "--account", f"{RELEASE}-{role}", "--ca-secret", f"{RELEASE}-ca"
        )
        if not said.startswith(role):
            raise Failed(f"firth login as {role} says {said!r}")

    def proxies(self):
        return json.loads(self.firth("proxies", "-o", "json"))

    def authority(self):
        return json.loads(self.firth("authority", "-o", "json"))

    def grpcurl(self, *words):
        files = [word for flag, name in (("-cacert", "ca"), ("-cert", "cert"), ("-key", "key")) for word in (flag, self.identity / f"{name}.pem")]
        return run(tool("grpcurl", "GRPCURL", "firth/grpcurl/*/grpcurl"), *files, self.server, *words)


@contextmanager
def asking(identity, role="reader"):
    """Forwards a port of a control plane, and logs in."""
    command = ["kubectl", "--namespace", NAMESPACE, "port-forward", f"deploy/{RELEASE}-control-plane", ":15010"]
    forward = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        first = forward.stdout.readline()
        port = re.search(r"127\.0\.0\.1:(\d+)", first)
        if not port:
            raise Failed(f"kubectl port-forward: {first}{forward.stdout.read()}")
        planes = Planes(f"127.0.0.1:{port[1]}", Path(identity))
        planes.login(role)
        yield planes
    finally:
        forward.terminate()
        forward.wait()


def reachable(address):
    try:
        socket.create_connection(address, 1).close()
        return True
    except OSError:
        return False
