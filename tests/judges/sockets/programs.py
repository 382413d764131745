"""The judges that run servers and their load generators."""

import hashlib
import json
import random
import re
from pathlib import Path

import mongo
from side import MILLRACE, WINDOW, Failed

NGINX_PORT, UPSTREAM_PORT, MEMCACHED_PORT, IPERF_PORT, SOCKPERF_PORT = 8080, 8081, 11211, 5201, 11111
REDIS_PORT, REPLICA_PORT = 6379, 6380
MILLRACE_PORT = 27017
FILE_BYTES = {"1B": 1, "1KB": 1 << 10, "64KB": 64 << 10, "1MB": 1 << 20, "10MB": 10 << 20}
# Requests of `ab` a file, so that each takes about as long.
AB_REQUESTS = {"1B": 3000, "1KB": 3000, "64KB": 1000, "1MB": 200, "10MB": 30}


class Judge:
    """A judge: its name, what it needs, how long it may take, and what it moves at least."""

    is_suite = False

    def __init__(self, run, programs, limit_s, bytes_moved):
        self.name = run.__name__
        self.run = run
        self.programs = programs
        self.limit_s = limit_s
        self.bytes_moved = bytes_moved

    def needs(self):
        """The programs that must be there."""
        return ["unshare", "ip", *self.programs]


def contents(name, length):
    """Bytes that the name decides."""
    return random.Random(name).randbytes(length)


NGINX_CONFIGURATION = """
daemon off;
{user}
worker_processes 2;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    sendfile {sendfile};
    tcp_nopush {sendfile};
    keepalive_requests 1000000;
    client_max_body_size 64m;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream kept {{ server 127.0.0.1:{upstream}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        listen [::1]:{port};
        location / {{ root {folder}/files; }}
        location /proxied/ {{ proxy_pass http://127.0.0.1:{upstream}/; }}
        location /kept/ {{ proxy_pass http://kept/; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        location = /port {{ return 200 "$remote_addr $server_addr $server_port\\n"; }}
    }}
    server {{
        listen 127.0.0.1:{upstream} reuseport;
        location / {{ root {folder}/files; }}
        location /echo {{ client_body_buffer_size 1k; proxy_pass http://127.0.0.1:{port}/port; }}
    }}
}}
"""


def children(pid):
    """The processes that a process has started and that still are."""
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def nginx(side):
    """Files of five sizes, with sendfile and without, by curl, ab and wrk; proxying, ranges, and a reload."""
    files = side.folder / "files"
    files.mkdir()
    for name, length in FILE_BYTES.items():
        (files / name).write_bytes(contents(name, length))
    for sendfile in ("on", "off"):
        _nginx(side, sendfile)


def _nginx(side, sendfile):
    configuration = side.folder / f"nginx-{sendfile}.conf"
    # Direct mode is between processes of one user.
    configuration.write_text(NGINX_CONFIGURATION.format(
        folder=side.folder, port=NGINX_PORT, upstream=UPSTREAM_PORT, sendfile=sendfile, user="user root;"))
    server = side.start(f"nginx-{sendfile}", ["nginx", "-p", side.folder, "-c", configuration])
    side.until_listening(NGINX_PORT, UPSTREAM_PORT)
    _fetches(side, sendfile)
    for name, requests in AB_REQUESTS.items():
        for kept in (True, False):
            _ab(side, sendfile, name, requests, kept)
    for name in ("1KB", "1MB"):
        _wrk(side, sendfile, name)
    # New workers take over the listeners while the old ones end.
    old = children(server.pid)
    side.run("nginx-reload", ["nginx", "-p", side.folder, "-c", configuration, "-s", "reload"])
    side.until("new workers only", lambda: len(children(server.pid)) == 2 and not children(server.pid) & old)
    _ab(side, f"{sendfile} after a reload", "1KB", 2000, True)
    side.stop(server)


def _fetches(side, sendfile):
    """Checksums and lengths of what curl gets in different ways."""
    origin, six = f"http://127.0.0.1:{NGINX_PORT}", f"http://[::1]:{NGINX_PORT}"
    curl = ["curl", "-sS", "--fail", "--max-time", "90", "--noproxy", "*"]
    for name in FILE_BYTES:
        urls = {"plain": [f"{origin}/{name}"], "six": ["-g", f"{six}/{name}"],
                "proxied": [f"{origin}/proxied/{name}"], "kept": [f"{origin}/kept/{name}"] * 3,
                "closed": ["-H", "Connection: close", f"{origin}/{name}"], "old": ["--http1.0", f"{origin}/{name}"],
                "range": ["-r", "0-0,-1", f"{origin}/{name}"], "twice": [f"{origin}/{name}"] * 2}
        for way, arguments in urls.items():
            body = side.run("curl", [*curl, *arguments])
            # The boundary between parts is drawn at random.
            body = re.sub(rb"\d{20}", b"", body) if way == "range" else body
            side.results[f"{sendfile} {name} {way}"] = [len(body), hashlib.sha256(body).hexdigest()]
    side.results[f"{sendfile} head"] = re.sub(
        rb"(Date|Last-Modified|ETag):[^\n]*\n", b"", side.run("curl", [*curl, "-I", f"{origin}/1MB"])).decode()
    side.results[f"{sendfile} missing"] = side.run(
        "curl", ["curl", "-sS", "--max-time", "90", "-o", "/dev/null", "-w", "%{http_code}", f"{origin}/none"]).decode()
    side.results[f"{sendfile} addresses"] = side.run("curl", [*curl, f"{origin}/port"]).decode()
    posted = side.folder / "files" / "10MB"
    side.results[f"{sendfile} post"] = side.run(
        "curl", [*curl, "--data-binary", f"@{posted}", f"http://127.0.0.1:{UPSTREAM_PORT}/echo"]).decode()
    # A download that is broken off must not harm the server.
    side.run("curl", ["bash", "-c", f"{' '.join(curl[:-2])} {origin}/10MB | head -c 1000 | wc -c"])


def _ab(side, label, name, requests, kept):
    command = ["ab", "-q", "-n", requests, "-c", 16, "-s", 60, *(["-k"] if kept else []),
               f"http://127.0.0.1:{NGINX_PORT}/{name}"]
    told = dict(re.findall(r"^([A-Z][\w /-]+):\s+(.+)$", side.run("ab", command).decode(), re.M))
    kind = f"{label} ab {'kept' if kept else 'closed'} {name}"
    for field in ("Complete requests", "Failed requests", "Non-2xx responses", "Keep-Alive requests",
                  "Document Length", "HTML transferred"):
        side.results[f"{kind} {field}"] = told.get(field)
    if told.get("Failed requests") != "0":
        raise Failed(f"{kind}: {told.get('Failed requests')} requests failed")
    if name == "1KB":
        side.notes[f"{'ab -k' if kept else 'ab'} 1KB/s"] = round(float(told["Requests per second"].split()[0]))


def _wrk(side, sendfile, name):
    told = side.run("wrk", ["wrk", "-t", 2, "-c", 16, "-d", "1s", "--timeout", "60s",
                            f"http://127.0.0.1:{NGINX_PORT}/{name}"]).decode()
    found = re.search(r"(\d+) requests in", told)
    side.results[f"{sendfile} wrk {name} some"] = bool(found) and int(found[1]) > 0
    side.results[f"{sendfile} wrk {name} errors"] = re.findall(r"Socket errors.*|Non-2xx.*", told)
    side.notes[f"wrk {name}/s"] = round(float(re.search(r"Requests/sec:\s+([\d.]+)", told)[1]))


def redis(side):
    """redis-benchmark in several shapes, then commands whose answers are compared, and a replica."""
    common = ["--save", "", "--appendonly", "no", "--enable-debug-command", "yes", "--bind", "127.0.0.1",
              "--dir", side.folder, "--repl-diskless-sync-delay", "0", "--daemonize", "no"]
    server = side.start("redis", ["redis-server", "--port", REDIS_PORT, *common])
    side.until_listening(REDIS_PORT)
    _redis_benchmarks(side)
    _redis_commands(side)
    replica = side.start("replica", ["redis-server", "--port", REPLICA_PORT, *common,
                                     "--replicaof", "127.0.0.1", REDIS_PORT])
    side.until_listening(REPLICA_PORT)

    def digest(port):
        return _cli(side, port, "DEBUG", "DIGEST").strip()
    side.until("the replica is there", lambda: "master_link_status:up" in _cli(side, REPLICA_PORT, "INFO"))
    side.run("redis-benchmark", ["redis-benchmark", "-p", REDIS_PORT, "-t", "incr", "-n", 5000, "-c", 10, "-q"])
    side.until("the replica has all", lambda: digest(REDIS_PORT) == digest(REPLICA_PORT), limit_s=30)
    side.results["replica keys"] = _cli(side, REPLICA_PORT, "DBSIZE") == _cli(side, REDIS_PORT, "DBSIZE")
    side.stop(replica)
    side.stop(server)
    threaded = side.start("redis-threads", ["redis-server", "--port", REPLICA_PORT, *common, "--io-threads", 2,
                                            "--io-threads-do-reads", "yes"])
    side.until_listening(REPLICA_PORT)
    # It listens before it has read what the other one had saved.
    side.until("nothing is loaded any more", lambda: "\nloading:0" in _cli(side, REPLICA_PORT, "INFO", "persistence"))
    _redis_benchmark(side, REPLICA_PORT, "threads", "set,get", 20000, 50, "-P", 8)
    side.stop(threaded)


def _redis_benchmark(side, port, label, commands, count, clients, *options):
    told = side.run("redis-benchmark", ["redis-benchmark", "-p", port, "-t", commands, "-n", count, "-c", clients,
                                        "--csv", *options]).decode()
    rows = [line.replace('"', "").split(",") for line in told.splitlines() if line.startswith('"')]
    head = rows[0]
    for columns in rows[1:]:
        # A command that did not run to its end has no such row.
        side.results[f"{label} {columns[0]}"] = float(columns[1]) > 0
        if columns[0] == "GET":
            side.notes[f"GET {label} p50 us"] = round(1000 * float(columns[head.index("p50_latency_ms")]))


def _redis_benchmarks(side):
    every = "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,lrange_600,mset"
    _redis_benchmark(side, REDIS_PORT, "-c 50", every, 3000, 50)
    _redis_benchmark(side, REDIS_PORT, "-c 1", "ping,set,get,incr", 2000, 1)
    _redis_benchmark(side, REDIS_PORT, "pipelined", "set,get,lpush", 50000, 50, "-P", 16)
    _redis_benchmark(side, REDIS_PORT, "big", "set,get", 300, 8, "-d", 500_000)
    _redis_benchmark(side, REDIS_PORT, "closed", "set,get", 1000, 10, "-k", 0)
    _redis_benchmark(side, REDIS_PORT, "threads of the client", "set,get", 20000, 20, "--threads", 2)


def _cli(side, port, *words, stdin=None):
    options = {"input": stdin} if stdin is not None else {}
    return side.run("redis-cli", ["redis-cli", "-p", port, *words], **options).decode()


def _redis_commands(side):
    def compare(*words, stdin=None):
        side.results[" ".join(str(word)[:40] for word in words)] = _cli(side, REDIS_PORT, *words, stdin=stdin)
    compare("FLUSHALL")
    draw = random.Random(7)
    mass = b"".join(b"SET key:%d %s\r\n" % (index, draw.randbytes(draw.randrange(1, 200)).hex().encode())
                    for index in range(20000))
    told = _cli(side, REDIS_PORT, "--pipe", stdin=mass)
    side.results["--pipe"] = told.splitlines()[-1:]
    compare("DBSIZE")
    compare("DEBUG", "DIGEST")
    big = draw.randbytes(3_000_000).hex()
    compare("-x", "SET", "big", stdin=big.encode())
    compare("STRLEN", "big")
    side.results["GET big"] = hashlib.sha256(_cli(side, REDIS_PORT, "GET", "big").encode()).hexdigest()
    compare("EVAL", "local s = 0 for i = 1, 1000 do s = s + i end return {s, redis.call('DBSIZE')}", "0")
    compare("--scan", "--pattern", "key:1999?")
    side.results["--scan --pattern key:1999?"] = sorted(side.results["--scan --pattern key:1999?"].split())
    compare("NOSUCH")
    waiting = side.start("redis-blpop", ["redis-cli", "-p", REDIS_PORT, "BLPOP", "queue", 20])
    side.until("a client waits", lambda: "blocked_clients:1" in _cli(side, REDIS_PORT, "INFO", "clients"))
    compare("RPUSH", "queue", "woken")
    if waiting.wait(side.seconds_left(20)) != 0:
        raise Failed("BLPOP did not end in order")
    side.results["BLPOP"] = (side.folder / "redis-blpop.log").read_text()
    listener = side.start("redis-subscriber", ["redis-cli", "-p", REDIS_PORT, "SUBSCRIBE", "news"])
    side.until("a subscriber is there", lambda: "1" in _cli(side, REDIS_PORT, "PUBSUB", "NUMSUB", "news").split())
    compare("PUBLISH", "news", "hello")
    side.until("the subscriber heard", lambda: "hello" in (side.folder / "redis-subscriber.log").read_text())
    listener.kill()
    listener.wait()
    side.until("the subscriber is gone",
               lambda: "connected_clients:1\r" in _cli(side, REDIS_PORT, "INFO", "clients"))
    compare("BGSAVE")
    side.until("saved", lambda: "rdb_bgsave_in_progress:0" in _cli(side, REDIS_PORT, "INFO", "persistence"))
    side.results["saved"] = "rdb_last_bgsave_status:ok" in _cli(side, REDIS_PORT, "INFO", "persistence")


def memcached(side):
    """memcached's own conformance test, memcaslap's checked loads, and files stored and fetched."""
    user = ["-u", "root"]
    server = side.start("memcached", ["memcached", "-l", "127.0.0.1", "-p", MEMCACHED_PORT, "-t", 2, "-m", 256,
                                      "-I", "8m", *user])
    side.until_listening(MEMCACHED_PORT)
    for protocol in ("-a", "-b"):
        told = side.run("memccapable", ["memccapable", "-h", "127.0.0.1", "-p", MEMCACHED_PORT, protocol, "-t", 30],
                        status=None).decode()
        for name, outcome in re.findall(r"^(.+?)\s+\[(\w+)\]$", told, re.M):
            side.results[f"{protocol} {name.strip()}"] = outcome
    host = f"127.0.0.1:{MEMCACHED_PORT}"
    for label, options in {"text": [], "binary": ["-B"], "verified": ["-v", "0.5"], "multi-get": ["-d", 20]}.items():
        told = side.run("memcaslap", ["memcaslap", "-s", host, "-T", 2, "-c", 16, "-x", 20000, *options]).decode()
        checked = ("verify_misses", "verify_failed") if label == "verified" else ()
        for field in ("cmd_get", "cmd_set", "get_misses", *checked):
            found = re.search(rf"^{field}: (\d+)", told, re.M)
            side.results[f"{label} {field}"] = bool(found) and (
                int(found[1]) == 0 if field in checked else int(found[1]) >= 0)
        side.notes[f"{label}/s"] = int(re.search(r"TPS: (\d+)", told)[1])
    for name, length in FILE_BYTES.items():
        if length < 8 << 20:
            path = side.folder / f"item-{name}"
            path.write_bytes(contents(name, length))
            side.run("memccp", ["memccp", f"--servers={host}", path])
            fetched = side.folder / "fetched"
            side.run("memccat", ["memccat", f"--servers={host}", f"--file={fetched}", path.name])
            side.results[f"stored {name}"] = fetched.read_bytes() == path.read_bytes()
    side.stop(server)


def iperf3(side):
    """Both directions, several streams, both ways at once, small and large writes, zero-copy, a rate."""
    server = side.start("iperf3-server", ["iperf3", "-s", "-p", IPERF_PORT, "--forceflush"])
    side.until_listening(IPERF_PORT)
    shapes = {"up": [], "down": ["-R"], "four up": ["-P", 4], "four down": ["-P", 4, "-R"], "both": ["--bidir"],
              "small": ["-l", 64], "large": ["-l", "1M"], "zero-copy": ["-Z"], "no delay": ["-N"],
              "rate": ["-b", "10M"]}
    for label, options in shapes.items():
        amount = [] if label in ("both", "rate", "small") else ["-n", "200M"]
        told = json.loads(side.run(
            "iperf3", ["iperf3", "-c", "127.0.0.1", "-p", IPERF_PORT, "-J", *(amount or ["-t", 1]), *options]))
        ends = told.get("end", {})
        side.results[f"{label} error"] = told.get("error")
        side.results[f"{label} streams"] = len(ends.get("streams", []))
        received = ends.get("sum_received", {}).get("bytes", 0)
        side.results[f"{label} received enough"] = received >= (100 << 20 if amount else 1)
        if label in ("up", "down", "small"):
            side.notes[f"{label} Gbit/s"] = round(ends["sum_received"]["bits_per_second"] / 1e9, 1)
    side.stop(server, status=None)


def sockperf(side):
    """Ping-pong and throughput over TCP by each of sockperf's ways to wait."""
    for mode in ("recvfrom", "select", "poll", "epoll"):
        feed = side.folder / "feed"
        # Several sockets, as its options to wait need a list.
        feed.write_text("".join(f"T:127.0.0.1:{SOCKPERF_PORT + index}\n" for index in range(3)))
        listed = [] if mode == "recvfrom" else ["-f", feed, "-F", mode]
        ports = [SOCKPERF_PORT] if mode == "recvfrom" else [SOCKPERF_PORT + index for index in range(3)]
        place = ["-i", "127.0.0.1", "-p", SOCKPERF_PORT, "--tcp"] if mode == "recvfrom" else listed
        server = side.start(f"sockperf-{mode}", ["sockperf", "server", *place])
        side.until_listening(*ports)
        for kind, options in {
            "ping-pong": ["ping-pong", "-t", 1, "-m", 64], "large": ["ping-pong", "-t", 1, "-m", 20000],
            "under-load": ["under-load", "-t", 1, "-m", 64, "--mps", 5000, "--reply-every", 10],
            "throughput": ["throughput", "-t", 1, "-m", 1400],
        }.items():
            if kind != "ping-pong" and mode != "recvfrom" and (kind, mode) != ("under-load", "epoll"):
                continue
            told = side.run("sockperf", ["sockperf", *options[:1], *place, *options[1:]]).decode()
            side.results[f"{mode} {kind}"] = _sockperf_told(told, kind, is_one=mode == "recvfrom")
            if found := re.search(r"percentile 50.000 =\s+([\d.]+)", told):
                side.notes[f"{mode} {kind} p50 us"] = found[1]
        side.stop(server, status=None)
        log = (side.folder / f"sockperf-{mode}.log").read_text(errors="replace")
        side.results[f"{mode} errors"] = sorted(set(re.findall(r"ERROR: (.*)", log)))


def _sockperf_told(told, kind, is_one):
    """What must be so of a run of sockperf's client, however long it took."""
    if kind == "throughput":
        rate = re.search(r"Message Rate is (\d+)", told)
        return {"some were sent": bool(rate) and int(rate[1]) > 0}
    sent, received = map(int, re.search(r"\[Total Run\].* SentMessages=(\d+); ReceivedMessages=(\d+)", told).groups())
    # What is still under way at the end counts as dropped. On a slow machine no message may be left to be looked at.
    odd = re.search(r"# duplicated messages = (\d+); # out-of-order messages = (\d+)", told)
    return {"some were answered": received > 0, "duplicated": int(odd[1]) if odd else 0,
            # Of several sockets the answers come in no order.
            "out of order": int(odd[2]) if odd and is_one else 0,
            "all but the last were answered": sent - received <= 1 if kind != "under-load" else None}


def millrace(side):
    """The database's own server, which listens on the window by itself, driven by PyMongo."""
    own = [f"--sockets={side.environment['MILLRACE_SOCKETS']}"] if side.kind == WINDOW else []
    server = side.start("millrace", [MILLRACE, "serve", "--port", MILLRACE_PORT, "--dbpath", side.folder / "data",
                                     "--cacheSizeGB", 0.1, "--journalCommitInterval", 100, *own], plain=True)
    side.until_listening(MILLRACE_PORT)
    told = side.run("pymongo", [mongo.PYTHON, Path(mongo.__file__), MILLRACE_PORT]).decode()
    side.results.update(line.split("\t", 1) for line in told.splitlines())
    side.stop(server)


JUDGES = [
    Judge(nginx, ["nginx", "ab", "wrk", "curl"], 120, 600 << 20),
    Judge(redis, ["redis-server", "redis-cli", "redis-benchmark"], 120, 300 << 20),
    Judge(memcached, ["memcached", "memccapable", "memcaslap", "memccp", "memccat"], 90, 50 << 20),
    Judge(iperf3, ["iperf3"], 60, 1000 << 20),
    Judge(sockperf, ["sockperf"], 60, 10 << 20),
    Judge(millrace, [str(mongo.PYTHON)], 60, 10 << 20),
]
