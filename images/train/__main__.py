"""The load that a release is trained with: both planes, endpoints and clients on loopback, no cluster.

    python3 images/train FOLDER

FOLDER has `firth-control-plane` and `firth-data-plane`. Where they were built with `-Cprofile-generate` they write what they
counted as they end (LLVM_PROFILE_FILE). Counts of requests are fixed, and each answer is looked at: a load that was not
served as it should be is an error, not a poorer profile.
"""
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import clients
import manifests
import origin

# An instrumented build on a busy machine is slow.
PATIENCE = 120


def free_ports(count):
    """Ports that nobody had a moment ago."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [it.getsockname()[1] for it in held]
    for it in held:
        it.close()
    return ports


def wait(what, ready, planes):
    end = time.monotonic() + PATIENCE
    while not ready():
        for plane in planes:
            if plane.poll() is not None:
                raise SystemExit(f"train: {plane.args[0]} ended with {plane.returncode} while {what} was waited for")
        if time.monotonic() > end:
            raise SystemExit(f"train: {what} took more than {PATIENCE} s")
        time.sleep(0.1)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def run_clients(http, https, folder, endpoints):
    """Each kind of client in a process of its own, two at once; endpoints come and go meanwhile."""
    waiting = [multiprocessing.Process(target=it, args=(http, https), name=it.__name__) for it in clients.ALL]
    running, turn = [], 0
    while waiting or running:
        while waiting and len(running) < 2:
            running.append(waiting.pop(0))
            running[-1].start()
        turn += 1
        manifests.write_slice(folder, endpoints[: 1 + turn % len(endpoints)])
        running[0].join(0.5)
        for it in [it for it in running if it.exitcode is not None]:
            print(f"train: {it.name.strip('_')}: {'served' if it.exitcode == 0 else 'FAILED'}", flush=True)
            if it.exitcode:
                for other in running:
                    other.kill()
                raise SystemExit("train: what was asked was not answered as it should be")
            running.remove(it)


def stop(plane):
    """As Kubernetes does; what was counted is written on the way out."""
    plane.send_signal(signal.SIGTERM)
    try:
        code = plane.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"train: {plane.args[0]} did not end") from None
    if code:
        raise SystemExit(f"train: {plane.args[0]} ended with {code}")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    binaries = os.path.abspath(sys.argv[1])
    stream, admin, http, https = free_ports(4)
    origins = [origin.start() for _ in range(2)]
    endpoints = [port for _, port in origins]
    planes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            written = os.path.join(folder, "manifests")
            manifests.write(written, endpoints)
            log = open(os.path.join(folder, "log"), "wb")
            planes.append(subprocess.Popen(
                [f"{binaries}/firth-control-plane", "--manifests", written, "--insecure",
                 "--listen", f"127.0.0.1:{stream}"], stdout=log, stderr=log))
            planes.append(subprocess.Popen(
                [f"{binaries}/firth-data-plane", "--control-plane", f"http://127.0.0.1:{stream}", "--insecure",
                 "--http", f"127.0.0.1:{http}", "--https", f"127.0.0.1:{https}", "--admin", f"127.0.0.1:{admin}",
                 "--state-dir", f"{folder}/state", "--workers", "2", "--drain-grace", "0",
                 "--access-log", "/dev/null"], stdout=log, stderr=log))
            wait("a proxy that is ready", lambda: answers(f"http://127.0.0.1:{admin}/readyz"), planes)
            run_clients(http, https, written, endpoints)
            for plane in reversed(planes):
                stop(plane)
        except BaseException:
            with open(os.path.join(folder, "log"), errors="replace") as log:
                sys.stderr.writelines(log.readlines()[-40:])
            raise
        finally:
            for plane in planes:
                plane.kill()
            for process, _ in origins:
                process.kill()


if __name__ == "__main__":
    main()
