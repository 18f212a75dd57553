"""The driver of tools/compare: times libmha and its peers in turns, and prints what came of it.

Noise of a machine comes and goes in seconds, so in each round every problem is timed by all parties
one right after the other, a round follows a round, and the shortest time of each party counts. A
time is of one call: enqueue and finish, or a call from Python. Speed never decides the exit code.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "doc" / "results"
OURS, TORCH, RUNTIME, BEST = "libmha", "PyTorch", "ONNX Runtime", "best peer"
CLBLAST, PEAK = "CLBlast", "peak"
PEERS = (TORCH, RUNTIME, BEST)  # of tools/peers.py
PARTIES = (*PEERS, CLBLAST)  # those whose time of the same problem a row is beside
MOST_CALLS = 2000  # in a turn
MOST_NOISE = 0.3  # above it a verdict bears a question mark


class Row:
    """A problem, whom or what it is compared with, the ratio that must be and the one aimed at."""

    def __init__(self, room, word, beside, must, aim=None, at_most=False):
        self.room, self.word, self.beside, self.must, self.aim = room, word, beside, must, aim
        self.at_most = at_most  # our time by the other's, not the other's by ours
        self.name = f"{room} {word} / {beside}"

    def ratio(self, ours_ms, other_ms):
        if self.at_most:
            return ours_ms / other_ms
        # Of one problem the quotient of times; of two, that of operations in a time.
        is_same = self.beside in (*PARTIES, PEAK)
        work = 1.0 if is_same else flops(self.word) / flops(self.beside)
        return work * other_ms / ours_ms

    def is_met(self, ratio):
        return ratio <= self.must if self.at_most else ratio >= self.must

    def shortfall(self, ratio):
        return ratio / self.must - 1 if self.at_most else self.must / ratio - 1


def list_rows():
    rows = []

    def add(room, word, *wanted, **options):
        rows.extend(Row(room, word, *beside, **options) for beside in wanted)

    for dim in (64, 128):
        for length in (512, 1024, 2048, 4096):
            heads = 8 if length == 4096 else 12
            add("streaming", f"b1h{heads}q{length}k{length}d{dim}", (TORCH, 1.10), (BEST, 1.0))
    add("streaming", "b1h8q128k128d64", (TORCH, 1.2))
    for dim in (64, 128):
        for length in (1024, 2048):
            add("causal", f"b1h12q{length}k{length}d{dim}c", (TORCH, 1.5))
    base = "b1h12q1024k1024d64"
    for dim in (32, 40, 80, 96, 256):
        add("head dim", f"b1h12q1024k1024d{dim}", (base, 0.8))
    add("length", base + "l1023", (base, 1.05), at_most=True)
    add("mask", base + "m0.5", (base, 1.15), at_most=True)
    add("bias", base + "ahqk", (base, 1.25), at_most=True)
    for heads in (8, 32):
        add("decode", f"b1h{heads}q1k4096d128", (TORCH, 1.8), (RUNTIME, 1.5))
    for heads in (8, 32):
        word = f"b1h{heads}q1k4096d128"
        add("half cache", word + "tkf16", (word, 1.4))
    add("tiny", "b2h5q4k6d20", (TORCH, 2.0), (RUNTIME, 0.9))
    for sizes in ((128, 768, 768), (512, 768, 768), (2048, 768, 768), (512, 2304, 768),
                  (1024, 1024, 1024)):
        clblast = [(CLBLAST, 8.0, 11.0)] if sizes[0] >= 1024 else []
        add("gemm", "gemm-m{}n{}k{}W".format(*sizes), (TORCH, 1.0), *clblast)
    add("gemm", "gemm-m1024n1024k1024", (TORCH, 0.9))
    for heads, length in ((12, 1024), (12, 2048), (8, 4096)):
        add("share of peak", f"b1h{heads}q{length}k{length}d64", (PEAK, 0.75, 0.85))
    for sizes in ((512, 768, 768), (2048, 768, 768), (1024, 1024, 1024)):
        add("share of peak", "gemm-m{}n{}k{}W".format(*sizes), (PEAK, 0.80, 0.92))
    for heads, width in ((8, 512), (12, 768)):
        for batch, length in ((1, 128), (1, 512), (8, 128), (8, 512)):
            must = {(1, 512): 1.10, (8, 512): 1.3}.get((batch, length), 1.05)
            add("layer", f"layer-b{batch}h{heads}q{length}k{length}e{width}BT", (TORCH, must))
    sizes = [(batch, length) for batch in (1, 16) for length in (32, 128)]
    for batch, length in sizes:
        add("encoder layer", f"encoder-b{batch}h12q{length}e384f1536BT", (TORCH, 1.1, 1.4))
    for batch, length in sizes:
        add("model", f"model-b{batch}q{length}", (TORCH, 1.1, 1.4), (RUNTIME, 1.1, 1.4))
    return rows


def flops(word):
    """Floating-point operations of a plain attention, 4 b h q k d, of a product, or of an encoder
    layer, whose heads are as wide as its rows."""
    if found := re.match(r"gemm-m(\d+)n(\d+)k(\d+)", word):
        m, n, k = map(int, found.groups())
        return 2.0 * m * n * k
    if found := re.match(r"encoder-b(\d+)h\d+q(\d+)e(\d+)f(\d+)", word):
        batch, tokens, width, between = map(int, found.groups())
        return 4.0 * batch * tokens * width * (2 * width + between + tokens)
    batch, heads, queries, keys, dim = map(
        int, re.match(r"b(\d+)h(\d+)q(\d+)k(\d+)d(\d+)", word).groups())
    return 4.0 * batch * heads * queries * keys * dim


def count_flops(word):
    """The same, half of it where causal."""
    return flops(word) / (2 if word.endswith("c") else 1)


class Peers:
    """The process that tools/peers.py is."""

    def __init__(self, model, cpus):
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tools" / "peers.py"), model, *map(str, cpus)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what, **request):
        try:
            self.process.stdin.write(json.dumps({"do": what, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            sys.exit("compare: the peers' process has ended; the lines above say why")
        answer = json.loads(line)
        if "error" in answer:
            sys.exit(f"compare: peers: {answer['error']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Bench:
    """mha-bench, a process a turn: what it measures does not depend on what ran before."""

    def __init__(self, path, options):
        self.command = [path, "--speed", "--csv", "--min-time", "0", *options]
        self.device = None
        self.peaks = []  # GFLOP/s of the device at its best, as often as they were measured

    def time(self, word, repeats, *options):
        done = subprocess.run([*self.command, *options, "--runs", str(repeats), word], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(f"compare: mha-bench {word}: {done.stderr.strip() or 'failed'}")
        result = next(csv.DictReader(done.stdout.splitlines()))
        self.device = f"{result['device']} ({result['platform']})"
        if result["peak_gflops"]:
            self.peaks.append(round(float(result["peak_gflops"]), 1))
        return float(result["min_ms"])


class Times:
    """What each party took for each problem: the shortest time of each turn, in milliseconds. A
    problem counts once in each room, since the ratios there are to what ran beside it."""

    def __init__(self):
        self.turns = {}
        self.refusals = {}

    def add(self, room, word, party, ms):
        self.turns.setdefault((room, word, party), []).append(round(ms, 5))

    def listed(self):
        return [{"room": room, "word": word, "party": party, "ms": ms}
                for (room, word, party), ms in self.turns.items()]

    def take(self, listed):
        for one in listed:
            key = one["room"], one["word"], one["party"]
            self.turns.setdefault(key, []).extend(one["ms"])

    def best(self, room, word, party):
        """(milliseconds, who): of a family of peers, the fastest. None where nothing was timed."""
        fits = {OURS: lambda name: name == OURS,
                BEST: lambda name: name not in (OURS, CLBLAST)}.get(
            party, lambda name: name.startswith(party))
        found = [(min(ms), name) for (r, w, name), ms in self.turns.items()
                 if (r, w) == (room, word) and fits(name)]
        return min(found) if found else None

    def noise(self, room, word, party):
        """How far the middle turn is above the shortest, as a part of it."""
        turns = self.turns[room, word, party]
        return statistics.median(turns) / min(turns) - 1


def plan(rows):
    """[(room, word, who else is timed)] in an order that keeps what is compared side by side."""
    turns = {}
    for row in rows:
        if row.beside not in (*PARTIES, PEAK):
            turns.setdefault((row.room, row.beside), set())
        turns.setdefault((row.room, row.word), set()).update(
            {BEST: [TORCH, RUNTIME], TORCH: [TORCH], RUNTIME: [TORCH, RUNTIME],
             CLBLAST: [CLBLAST], PEAK: [PEAK]}.get(row.beside, []))
    return [(room, word, sorted(peers)) for (room, word), peers in turns.items()]


def calls_for(times, turn, seconds):
    """As many as take about so many seconds by what is known, also from others; else a few."""
    known = [found[0] for party in (OURS, BEST) if (found := times.best(*turn[:2], party))]
    return max(3, min(MOST_CALLS, int(seconds * 1e3 / min(known)))) if known else 10


def run_turn(bench, peers, times, turn, round_number, seconds):
    room, word, wanted = turn
    named = [name for name in wanted if name in PEERS]

    def run_ours():
        # The peak takes a second or two: it is measured around the problems that are beside it.
        options = [] if PEAK in wanted else ["--no-peak"]
        times.add(room, word, OURS, bench.time(word, calls_for(times, turn, seconds), *options))

    def run_clblast():
        known = times.best(room, word, CLBLAST)
        repeats = max(3, min(MOST_CALLS, int(seconds * 1e3 / known[0]))) if known else 3
        times.add(room, word, CLBLAST, bench.time(word, repeats, "--no-peak", "--gemm", "clblast"))

    def run_peers():
        refusals = peers.ask("open", word=word, peers=named)
        for name, refusal in refusals.items():
            if refusal:
                times.refusals[f"{name}, {word}"] = refusal
                continue
            times.add(room, word, name, peers.ask("time", peer=name, seconds=seconds)["ms"])
        peers.ask("close")  # and with it the threads that would wait busily beside us

    parties = [run_ours, *([run_clblast] if CLBLAST in wanted else []),
               *([run_peers] if named else [])]
    for party in reversed(parties) if round_number % 2 else parties:
        party()


def measure(bench, peers, rows, times, args):
    """Into times. Returns the machine's load in each round."""
    turns, loads = plan(rows), []
    shows = sys.stderr.isatty()
    try:
        for done in range(1, args.rounds + 1):
            loads.append(round(os.getloadavg()[0], 1))
            for turn in turns:
                if shows:
                    print(f"\r\033[Kround {done}/{args.rounds}: {turn[1]}", end="",
                          file=sys.stderr)
                run_turn(bench, peers, times, turn, done, args.seconds)
            if not shows:
                print(f"compare: round {done} of {args.rounds} is done", file=sys.stderr)
    except KeyboardInterrupt:
        print("compare: interrupted; what was measured follows", file=sys.stderr)
    if shows:
        print("\r\033[K", end="", file=sys.stderr)
    return loads


def find_other(row, times, peak):
    """(milliseconds, party, its problem) of what a row is beside, or None. The time of the peak is
    what the row's problem would take at it, so that the share is a ratio like others."""
    if row.beside == PEAK:
        return (count_flops(row.word) / peak / 1e6, PEAK, row.word) if peak else None
    word, party = (row.word, row.beside) if row.beside in PARTIES else (row.beside, OURS)
    found = times.best(row.room, word, party)
    return (*found, word) if found else None


def judge(row, times, peak):
    """A row as the JSON file has it, or None where a party was not timed."""
    ours, other = times.best(row.room, row.word, OURS), find_other(row, times, peak)
    if not ours or not other:
        return None
    party, word = other[1:]
    ratio = row.ratio(ours[0], other[0])
    noises = [times.noise(row.room, row.word, OURS)]
    if party != PEAK:
        noises.append(times.noise(row.room, word, party))
    return {
        "row": row.name, "room": row.room, "word": row.word, "beside": row.beside,
        "ours_ms": round(ours[0], 5), "other": word if party == OURS else party,
        "other_ms": round(other[0], 5), "ratio": round(ratio, 3), "must": row.must, "aim": row.aim,
        "at_most": row.at_most, "met": row.is_met(round(ratio, 3)),
        "short": round(max(0.0, row.shortfall(ratio)), 3),
        "ours_gflops": round(count_flops(row.word) / ours[0] / 1e6, 1)
        if COUNTED.match(row.word) else None,
        "ours_sentences": round(int(found[1]) / ours[0] * 1e3, 1)
        if (found := MODEL.match(row.word)) else None,
        "noise": round(max(noises), 3),
        "turns": len(times.turns[row.room, row.word, OURS]),
    }


PLAIN = re.compile(r"b\d+h\d+q\d+k\d+d\d+(tkf16|c)?$|gemm-|encoder-")  # what count_flops knows
COUNTED = re.compile(r"b\d|gemm-|encoder-")  # and what it knows but for a mask
MODEL = re.compile(r"model-b(\d+)")


SENTENCES = ["The cat sat on the sill.", "A kitten rests by the window, and does not mind.",
             "Interest rates rose.", "Zwei Kätzchen."]
MOST_DIFFERENCE = 1e-5  # between vectors of length 1, where they differ most


def compare_vectors(args, device, peers):
    """What is timed is the same thing: the example's vectors of some sentences, tokens and all, are
    those of transformers. Returns how far they are apart."""
    program = pathlib.Path(args.bench).parents[1] / "examples/sentence-embedding/sentence-embedding"
    done = subprocess.run([program, "--format", "json", *device, args.model], text=True,
                          input="\n".join(SENTENCES) + "\n", capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"compare: {done.stderr.strip() or 'sentence-embedding failed'}")
    theirs = peers.ask("embed", sentences=SENTENCES)["vectors"]
    apart = max(abs(x - y) for ours, other in zip(json.loads(done.stdout), theirs, strict=True)
                for x, y in zip(ours, other, strict=True))
    if not apart < MOST_DIFFERENCE:
        sys.exit(f"compare: libmha's vectors of sentences are {apart:.1e} from those of PyTorch")
    return apart


def list_invalid(times, peak):
    """Who was faster than the peak, so that some time is wrong."""
    found = []
    for (room, word, party), turns in times.turns.items() if peak else ():
        gflops = count_flops(word) / min(turns) / 1e6 if PLAIN.match(word) else 0
        if gflops > peak:
            found.append(f"{party}, {room} {word}: {gflops:.1f} GFLOP/s")
    return found


def cpu_facts():
    """The processor's name, and what tells it from others that have the same one."""
    facts = {}
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = set(facts.get("flags", "").split())
    kind = [f"family {facts['cpu family']}, model {facts['model']}"] if "model" in facts else []
    kind += [name for name in ("avx2", "avx512f") if name in flags]
    return facts.get("model name") or platform.processor() or platform.machine(), ", ".join(kind)


def pick_cores(count):
    """So many of the processors that this process may use, of different cores if there are."""
    allowed, siblings, picked = sorted(os.sched_getaffinity(0)), set(), []
    for cpu in allowed:
        if cpu in siblings:
            continue
        picked.append(cpu)
        path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            for part in pathlib.Path(path).read_text(encoding="ascii").strip().split(","):
                first, _, last = part.partition("-")
                siblings.update(range(int(first), int(last or first) + 1))
        except OSError:
            pass
    picked += [cpu for cpu in allowed if cpu not in picked]
    if len(picked) < count:
        sys.exit(f"compare: --threads {count}: this process may use {len(picked)} processors")
    return picked[:count]


def read_result(path):
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"compare: {path}: {error}")


def find_baseline(args, result):
    """(name, its result) of --baseline, or of the newest committed one of such a processor."""
    if args.baseline:
        return args.baseline, read_result(args.baseline)
    found = []
    for path in sorted(RESULTS.glob("*.json")):
        other = read_result(path)
        if (other["cpu"], other["cpu_kind"]) == (result["cpu"], result["cpu_kind"]):
            found.append((other["date"], str(path.relative_to(ROOT)), other))
    return max(found, key=lambda one: one[:2])[1:] if found else (None, None)


def take_earlier(path, result, times, bench):
    """Lets the turns and peaks of an earlier run of the same thing on the same machine count."""
    earlier = read_result(path)
    for fact in ("cpu", "cpu_kind", "threads", "versions", "commit"):
        if earlier[fact] != result[fact]:
            sys.exit(f"compare: --add: {path} is of another {fact}: {earlier[fact]}, "
                     f"not {result[fact]}")
    times.take(earlier["times"])
    result["loads"] = earlier["loads"]
    bench.peaks += earlier.get("peaks", [])


def format_ms(ms):
    return f"{ms:.4f}" if ms < 1 else f"{ms:.3f}" if ms < 10 else f"{ms:.2f}"


def table(result, baseline):
    head = ["problem", "libmha ms", "GFLOP/s", "sentences/s", "beside", "its ms", "ratio", "must",
            "aim", "", "noise"]
    before = {row["row"]: row for row in baseline["rows"]} if baseline else {}
    if baseline:
        head.append("change")
    lines, room = [head], None
    for row in result["rows"]:
        if row["room"] != room:
            room = row["room"]
            lines.append([room])
        line = ["  " + row["word"], format_ms(row["ours_ms"]),
                "-" if row["ours_gflops"] is None else f"{row['ours_gflops']:.1f}",
                f"{row['ours_sentences']:.1f}" if row["ours_sentences"] else "",
                ("best: " if row["beside"] == BEST else "") + row["other"],
                format_ms(row["other_ms"]), f"{row['ratio']:.2f}",
                f"{'<=' if row['at_most'] else '>='} {row['must']:.2f}",
                f"{row['aim']:.2f}" if row["aim"] else "",
                ("ok" if row["met"] else f"short by {100 * row['short']:.0f}%")
                + ("?" if row["noise"] > MOST_NOISE else ""),
                f"{100 * row['noise']:.0f}%"]
        if baseline:
            old = before.get(row["row"])
            line.append(f"{100 * (row['ratio'] / old['ratio'] - 1):+.0f}%" if old else "new")
        lines.append(line)
    widths = [max(len(line[i]) for line in lines if i < len(line) > 1) for i in range(len(head))]
    left = (0, 4, 9)
    return "\n".join("  ".join(
        cell.ljust(widths[i]) if i in left else cell.rjust(widths[i])
        for i, cell in enumerate(line)).rstrip() for line in lines)


def heading(result):
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    commit = f" at {result['commit']}" if result["commit"] else ""
    turns = sorted(row["turns"] for row in result["rows"])
    peak = f"; at its best {result['peak_gflops']:.1f} GFLOP/s" if result["peak_gflops"] else ""
    return (f"libmha{commit} on {result['device']}{peak}\n"
            f"{versions}\n"
            f"{result['cpu']} ({result['cpu_kind']}), {result['threads']} threads each, "
            f"{result['date']}, {turns[0]} to {turns[-1]} turns of each party\n"
            f"load of the machine, ours included: {min(result['loads'])} to "
            f"{max(result['loads'])}")


def ending(result, baseline_name):
    short = [row for row in result["rows"] if not row["met"]]
    unsure = sum(row["noise"] > MOST_NOISE for row in result["rows"])
    lines = [f"INVALID: faster than the device at its best, so a time or the peak is wrong: {who}"
             for who in result["invalid"]]
    lines += [f"{len(result['rows'])} rows, {len(short)} fall short"
              + (f"; {unsure} verdicts are uncertain (?): other programs kept the cores busy"
                 if unsure else "")]
    if baseline_name:
        lines.append(f"change: of the ratio, since {baseline_name}")
    lines += [f"not timed: {who}: {why}" for who, why in result["refusals"].items()]
    return "\n".join(lines)


LEGEND = """A ratio is the other's time by libmha's: above 1 libmha is faster. Where the other is a
problem of libmha's own it is GFLOP/s by GFLOP/s in `head dim`, the other's time by ours in `half
cache`, and our time by the other's in `length`, `mask` and `bias`, where `must` says `<=`. In
`share of peak` it is libmha's GFLOP/s by the device's best: of small kernels that only multiply and
add, measured around each of these problems in each round, the fastest. Who is faster than that
makes the run invalid. A `model` is from tokens to vectors: the tool first sees to it that those of
some sentences are the same; PyTorch has it by transformers and by its own encoder layers, the
faster of which counts. CLBlast is as it comes, called by mha-bench --gemm clblast. A time is that
of the fastest single call: enqueue and finish, or a call from Python. GFLOP/s counts 4 b h q k d,
half of it where causal, and of an encoder layer its products too. The mask of `m0.5` lets half of
the pairs be seen. A product with `W` has loaded its second factor ahead, as a layer has its weights;
PyTorch's mm is given both in each call, as libmha is in the row without. `must` is what a ratio
must be, `aim` what it shall become. `noise` is how far the middle turn was above the fastest, of the
noisier party: where it is large, other programs kept the cores busy, a verdict bears a question
mark, and the ratio may be far off; on such a machine go on with `--add` when it is quiet."""


def dump(result):
    """JSON with a line for each fact, row and time."""
    lines = []
    for key, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n".join("  " + json.dumps(item) for item in value)
            lines.append(f" {json.dumps(key)}: [\n{items}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def markdown(result, text):
    return (f"# Speed beside PyTorch and ONNX Runtime\n\nMade by `tools/compare`; the same in "
            f"numbers is beside it as JSON.\n\n```\n{text}\n```\n\n{LEGEND}\n")


def plot(result, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    rows = result["rows"][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.24 * len(rows)))
    axes.barh(range(len(rows)), [row["ratio"] for row in rows],
              color=["#2a7f62" if row["met"] else "#c8553d" for row in rows])
    for i, row in enumerate(rows):
        axes.plot([row["must"]] * 2, [i - 0.4, i + 0.4], color="black", linewidth=1.5)
        axes.text(row["ratio"], i, f" {row['ratio']:.2f}{' (at most)' if row['at_most'] else ''}",
                  va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [row["row"] for row in rows], fontsize=7)
    axes.set_ylim(-0.8, len(rows) - 0.2)
    axes.set_xlim(0, 1.12 * max(max(row["ratio"], row["must"]) for row in rows))
    axes.axvline(1, color="grey", linewidth=0.7, linestyle=":")
    axes.set_xlabel("ratio; the black mark is what it must be, red bars miss it")
    axes.set_title(f"libmha on {result['cpu']}, {result['threads']} threads, "
                   + ", ".join(f"{name} {result['versions'][name]}" for name in (TORCH, RUNTIME)),
                   fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def read_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/compare", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Times libmha, PyTorch and ONNX Runtime in turns on the same cores, and prints "
        "the ratios.\nReports only: the exit code says nothing about speed.",
        epilog="also: --peers DIR  where the peers are installed, about 5 GB (the user's cache)\n"
        "      --build DIR  where libmha is built (build)\n\n" + LEGEND)
    parser.add_argument("--bench", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--only", metavar="PATTERN", default="",
                        help="rows in whose name this regular expression is found, as --list shows")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and end")
    parser.add_argument("--model", metavar="DIR", default="",
                        help="the BERT of the rows of models (as fetch-model fetches it)")
    parser.add_argument("--rounds", type=int, metavar="N", help="so many rounds (10)")
    parser.add_argument("--seconds", type=float, metavar="S",
                        help="of a party's turn, about (0.3); at least 3 calls")
    parser.add_argument("--quick", action="store_true",
                        help="2 rounds of short turns: a first look")
    parser.add_argument("--threads", type=int, default=2, metavar="N",
                        help="of each party, on as many cores (2)")
    parser.add_argument("--device", help="as for mha-bench (PoCL)")
    parser.add_argument("--out", metavar="FILE",
                        help="write JSON there, and the table beside it as .md")
    parser.add_argument("--add", action="store_true",
                        help="go on with --out's FILE: what it has measured counts too")
    parser.add_argument("--plot", metavar="FILE", help="draw the ratios: .png or .svg")
    parser.add_argument("--baseline", metavar="FILE", help="print the change since this JSON file "
                        "(the newest of doc/results with such a processor)")
    args = parser.parse_args()
    if args.add and not args.out:
        parser.error("--add needs --out")
    args.rounds = args.rounds or (2 if args.quick else 10)
    args.seconds = args.seconds or (0.1 if args.quick else 0.3)
    return args


def library_commit():
    """The last commit that the library is of, with a + where files differ from it."""
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words, "--", "include", "src", "cl"],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=False).stdout.strip()

    return git("log", "-1", "--format=%h") + ("+" if git("status", "--porcelain") else "")


def main():
    args = read_arguments()
    rows = [row for row in list_rows() if re.search(args.only, row.name)]
    if args.list:
        print("\n".join(row.name for row in rows))
        return
    if not rows:
        sys.exit(f"compare: --only {args.only}: in no row's name; --list shows them")
    cpus = pick_cores(args.threads)
    os.sched_setaffinity(0, cpus)
    for name in ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT"):  # of PoCL 3 and of later ones
        os.environ[name] = str(args.threads)
    device = ["--device", args.device] if args.device else []
    bench = Bench(args.bench, [*device, *(["--model", args.model] if args.model else [])])
    peers = Peers(args.model, cpus)
    cpu, kind = cpu_facts()
    result = {"cpu": cpu, "cpu_kind": kind, "threads": args.threads,
              "date": datetime.date.today().isoformat(), "commit": library_commit(),
              "versions": peers.ask("versions")}
    result["loads"] = []
    if any(MODEL.match(row.word) for row in rows):
        result["vectors_differ"] = compare_vectors(args, device, peers)
    times = Times()
    if args.add and os.path.exists(args.out):
        take_earlier(args.out, result, times, bench)
    result["loads"] += measure(bench, peers, rows, times, args)
    peers.close()
    peak = max(bench.peaks, default=None)
    result.update(device=bench.device, refusals=times.refusals, peak_gflops=peak,
                  peaks=bench.peaks, invalid=list_invalid(times, peak),
                  rows=[one for row in list_rows() if (one := judge(row, times, peak))],
                  times=times.listed())
    if not result["rows"]:
        sys.exit("compare: no row is complete")
    baseline_name, baseline = find_baseline(args, result)
    if args.out:
        text = "\n\n".join([heading(result), table(result, None), ending(result, None)])
        pathlib.Path(args.out).write_text(dump(result), encoding="utf-8")
        pathlib.Path(args.out).with_suffix(".md").write_text(markdown(result, text),
                                                             encoding="utf-8")
    if args.plot:
        plot(result, args.plot)
    print("\n\n".join([heading(result), table(result, baseline), ending(result, baseline_name)]))


if __name__ == "__main__":
    main()
