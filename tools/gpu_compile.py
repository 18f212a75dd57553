# Compiles kernel programs for GPUs that are not here, and says what they need of them.
"""usage: gpu_compile.py PROGRAMS WORK

PROGRAMS has a folder for each vendor, nvidia, amd and intel, with the programs that the library
builds there: NAME.cl and NAME.options. Prints a table; the exit code is 1 if a limit is passed.
tools/gpu-compile makes the folder and sets PTXAS and NVDISASM, which may be empty. WORK is for what
the compilers write.
"""
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

CLANG = ["clang-19", "-w", "-x", "cl", "-Xclang", "-finclude-default-header", "-O3"]
LIBCLC = pathlib.Path(os.environ.get("LIBCLC", "/usr/lib/clc"))
ROCM = pathlib.Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")

# Clang's library has exp2 and log for NVIDIA in software; that company's compiler has instructions.
NVIDIA_PRELUDE = """
#define UNARY(name, plain) \\
    float __attribute__((overloadable)) name(float x) { return plain; } \\
    float4 __attribute__((overloadable)) name(float4 v) \\
    { return (float4)(name(v.x), name(v.y), name(v.z), name(v.w)); }
UNARY(nvidia_exp2, __nvvm_ex2_approx_f(x))
UNARY(nvidia_log2, __nvvm_lg2_approx_f(x))
#define exp2(x) nvidia_exp2(x)
#define exp(x) nvidia_exp2((x) * 1.44269504f)
#define log(x) (nvidia_log2(x) * 0.69314718f)
"""

# The most registers of a work-item and bytes of local memory, and the percent of FMAs that an inner
# loop of attention is to have. More local memory would leave fewer work-groups on a compute unit than
# the registers do.
Target = collections.namedtuple("Target", "name vendor registers local_bytes fma")
TARGETS = [
    Target("sm_80", "nvidia", 255, 26 * 1024, 90),
    Target("sm_90", "nvidia", 255, 26 * 1024, 90),
    Target("gfx90a", "amd", 256, 13 * 1024, 75),
    Target("gfx1030", "amd", 256, 13 * 1024, 87),
    Target("gfx1100", "amd", 256, 13 * 1024, None),
    Target("dg2", "intel", 256, 32 * 1024, 76),
]
TYPES = {"1": "float32", "2": "float16", "3": "bfloat16"}

# spilled_bytes: of a work-item's registers or arrays that had to go to memory; None: not known.
Report = collections.namedtuple("Report", "kernel registers local_bytes spilled_bytes shares")
Instruction = collections.namedtuple("Instruction", "name is_fma goes_to")
# How a listing's lines read: `is_fma` of an instruction's name; `jump` finds a branch's label.
Syntax = collections.namedtuple("Syntax", "label instruction is_fma jump")

NVIDIA = Syntax(
    re.compile(r"^(\.L_x_\d+):"),
    re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@\S+\s+)?([A-Z]\S*)(.*);"),
    re.compile(r"FFMA|HFMA"),
    re.compile(r"^BRA\b.*`\((\.L_x_\d+)\)"),
)
AMD = Syntax(
    re.compile(r"^(\.LBB\w+):"),
    re.compile(r"^\t([a-z]\w+)\s*(.*)"),
    re.compile(r"v_(pk_|dual_)?(fma|fmac|mac|mad)"),
    re.compile(r"^s_c?branch\w*\s+(\.LBB\w+)"),
)
INTEL = Syntax(
    re.compile(r"^(\w+):"),
    re.compile(r"^(?:\([^)]*\))?\s+([a-z]\w*)(?:\.\w+)*\s+(.*)"),
    re.compile(r"mad|mac"),
    re.compile(r"^(?:jmpi|goto|while)\b.*?\s(\w+)\s*(?://.*)?$"),
)


def run(command, **more):
    done = subprocess.run(command, text=True, capture_output=True, check=False, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def number(pattern, text, default=None):
    match = re.search(pattern, text, re.M)
    return int(match.group(1)) if match else default


def read(lines, syntax):
    """A listing: the names of its instructions, where each label is, and the jumps (from, to)."""
    names, at, jumps = [], {}, []
    for line in lines:
        label = syntax.label.match(line)
        if label:
            at[label.group(1)] = len(names)
            continue
        match = syntax.instruction.match(line)
        if not match:
            continue
        jump = syntax.jump.match(match.group(1) + " " + match.group(2))
        if jump:
            jumps.append((len(names), jump.group(1)))
        names.append(match.group(1))
    return names, at, [(source, at[label]) for source, label in jumps if label in at]


def loops_of(jumps):
    """Innermost loops, as (first, end) instruction."""
    back = [(to, source + 1) for source, to in jumps if to <= source]
    return sorted({a for a in back
                   if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in back)})


def blocks_of(names, at, jumps):
    """Pieces with no label and no jump inside them, likewise."""
    cuts = sorted({0, len(names), *at.values(), *(source + 1 for source, _ in jumps)})
    return list(zip(cuts, cuts[1:]))


def shares_of(lines, syntax):
    """Percent of FMAs in what does a product's sums: an innermost loop that has 16 of them at the
    least; or, where none is left of that loop, a piece that has 256, more than of all else: an
    exponential has many as well."""
    names, at, jumps = read(lines, syntax)

    def count(piece):
        return sum(bool(syntax.is_fma.match(name)) for name in names[slice(*piece)])

    loops = loops_of(jumps)
    pieces = [loop for loop in loops if count(loop) >= 16]
    pieces += [block for block in blocks_of(names, at, jumps)
               if count(block) >= max(256, (block[1] - block[0]) / 2)
               and not any(first <= block[0] and block[1] <= end for first, end in loops)]
    return [100 * count(piece) / (piece[1] - piece[0]) for piece in pieces]


def sections(text, begin):
    """The listing of each kernel: pieces from where its name is matched on."""
    marks = list(re.finditer(begin, text, re.M))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return {mark.group(1): text[mark.end() : end] for mark, end in zip(marks, ends)}


def for_nvidia(target, source, options, work):
    ptxas, nvdisasm = os.environ.get("PTXAS"), os.environ.get("NVDISASM")
    prelude, ptx, cubin = work / "prelude.h", work / "program.ptx", work / "program.cubin"
    prelude.write_text(NVIDIA_PRELUDE, encoding="ascii")
    # The oldest PTX that knows the target.
    version = "+ptx78" if target == "sm_90" else "+ptx70"
    run(CLANG + ["-include", prelude, "-target", "nvptx64-nvidia-nvcl"]
        + [word for flag in ("-target-cpu", target, "-target-feature", version,
                             "-mlink-builtin-bitcode", LIBCLC / "nvptx64--nvidiacl.bc")
           for word in ("-Xclang", flag)]
        + ["-nogpulib", *options, "-S", source, "-o", ptx])
    if not ptxas:
        names = re.findall(r"^\.entry (\w+)|^\.visible \.entry (\w+)", ptx.read_text(), re.M)
        return [Report(a or b, None, None, None, []) for a, b in names]
    said = run([ptxas, f"-arch={target}", "-v", ptx, "-o", cubin])
    listings = {}
    if nvdisasm:
        listings = sections(run([nvdisasm, "-c", cubin]), r"^\.text\.(\w+):")
    return [
        Report(name, number(r"Used (\d+) registers", part), number(r"(\d+) bytes smem", part, 0),
               max(number(r"(\d+) bytes stack frame", part, 0),
                   number(r"(\d+) bytes spill stores", part, 0)),
               shares_of(listings.get(name, "").splitlines(), NVIDIA))
        for name, part in sections(said, r"Compiling entry function '(\w+)'").items()
    ]


def for_amd(target, source, options, work):
    listing = work / "program.s"
    isa = ROCM / f"oclc_isa_version_{target.removeprefix('gfx')}.bc"
    library = [f"--rocm-device-lib-path={ROCM}"]
    if not isa.exists():  # a GPU newer than that library: clang's own has what the kernels need
        library = ["-nogpulib", "-Xclang", "-mlink-builtin-bitcode", "-Xclang",
                   LIBCLC / "amdgcn--amdhsa.bc"]
    run(CLANG + ["-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", *library, *options, "-S", source,
                 "-o", listing])
    text = listing.read_text(encoding="utf-8")
    reports = []
    for part in text.split("\n  - ")[1:]:
        name = re.search(r"\.name: +(\w+)\n", part)
        if not name or ".vgpr_count" not in part:
            continue
        code = re.search(rf"^{name.group(1)}:(.*?)^\.Lfunc_end", text, re.M | re.S).group(1)
        # .vgpr_count is of both kinds together, where there are accumulation registers.
        spills = number(r"\.vgpr_spill_count: +(\d+)", part)
        reports.append(
            Report(name.group(1), number(r"\.vgpr_count: +(\d+)", part),
                   number(r"\.group_segment_fixed_size: +(\d+)", part),
                   max(4 * spills, number(r"\.private_segment_fixed_size: +(\d+)", part)),
                   shares_of(code.splitlines(), AMD)))
    return reports


def token(dump, wanted, word):
    """A 32-bit word of the patch token of a kernel that has the number `wanted`, or 0."""
    match = re.search(rf"\t4 Token {wanted}\n\t4 Size \d+\n\tHex ([0-9a-f ]+)", dump)
    digits = match.group(1).split()[4 * word : 4 * word + 4] if match else []
    return int.from_bytes(bytes(int(digit, 16) for digit in digits), "little")


def for_intel(target, source, options, work):
    dump = work / "dump"
    dump.mkdir()
    run(["ocloc", "compile", "-file", source, "-device", target, "-options", " ".join(options),
         "-output", "program", "-out_dir", work],
        env={**os.environ, "IGC_ShaderDumpEnable": "1", "IGC_DumpToCustomDir": str(dump)})
    run(["ocloc", "disasm", "-file", *work.glob("program*.bin"), "-device", target, "-dump",
         work / "parts"])
    tokens = sections((work / "parts" / "PTM.txt").read_text(encoding="ascii"),
                      r"^\tKernelName (\w+)")
    # A kernel that spills is compiled again, otherwise: what was written last is what counts.
    last = {}
    for path in sorted(dump.glob("*.asm"), key=lambda path: path.stat().st_mtime_ns):
        text = path.read_text(encoding="ascii")
        last[re.search(r"^//\.kernel (\w+)", text, re.M).group(1)] = text
    local, private = 15, 38  # ALLOCATE_LOCAL_SURFACE, ALLOCATE_STATELESS_PRIVATE_MEMORY
    return [
        Report(name, number(r"numGRF=(\d+)", text), token(tokens[name], local, 1),
               number(r"^//\.spill size (\d+)", text, 0) + token(tokens[name], private, 3),
               shares_of(text.splitlines(), INTEL))
        for name, text in last.items()
    ]


COMPILE = {"nvidia": for_nvidia, "amd": for_amd, "intel": for_intel}


def compile_for(target, source, options, work):
    """A Report for each kernel of the program; `work` is a folder of its own."""
    work.mkdir(parents=True)
    return COMPILE[target.vendor](target.name, source, options, work)


Program = collections.namedtuple("Program", "what source options")


def programs_of(folder):
    """What the library built, each once: a folder has a file more for every time that it did."""
    found = {}
    for path in sorted(folder.glob("*.options"), key=lambda path: int(path.stem)):
        source, options = path.with_suffix(".cl"), path.read_text(encoding="ascii")
        room = re.match(r'#line 1 "cl/(\w+)\.cl"', source.read_text(encoding="ascii"))
        if not room:  # CLBlast's, or another guest's
            continue
        dim, stored = re.search(r"HEAD_DIM=(\d+)", options), re.search(r"QUERY_TYPE=(\d)", options)
        words = [f"d{dim.group(1)}"] if dim else []
        words += [TYPES[stored.group(1)]] if stored else []
        words += re.findall(r"USES_(BIAS|MASK|ALIBI|RING)=1", options)
        found.setdefault((room.group(1), options),
                         Program(" ".join(words).lower(), source, options.split()))
    return [found[key] for key in sorted(found, key=lambda key: key[0] != "attend_gpu")]


def cell(value, most):
    """A number, and a mark where it is above what it may be."""
    return "?" if value is None else f"{value}{' !' if value > most else ''}"


def line_of(target, what, report):
    """A line of the table, and whether it is within the limits."""
    limits = [(report.registers, target.registers), (report.local_bytes, target.local_bytes),
              (report.spilled_bytes, 0)]
    kept = all(value is None or value <= most for value, most in limits)
    least = min(report.shares, default=None)
    share = "" if least is None else f"{least:.0f}%"
    if share and target.fma and report.kernel.startswith("attend"):
        short = least < target.fma
        share += f"{' !' if short else ''} of {target.fma}%"
        kept = kept and not short
    cells = [cell(value, most) for value, most in limits]
    text = f"{target.name:8} {report.kernel:18} {what:17} {cells[0]:>9} {cells[1]:>9} {cells[2]:>9}"
    return f"{text}   {share}".rstrip(), kept


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    programs, work = map(pathlib.Path, sys.argv[1:])
    jobs = [(target, program, work / f"{target.name}-{number}")
            for target in TARGETS
            for number, program in enumerate(programs_of(programs / target.vendor))]
    print(f"{'target':8} {'kernel':18} {'':17} {'registers':>9} {'local':>9} {'spilled':>9}   "
          "FMAs in its products")
    lines, kept = 0, True
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = [pool.submit(compile_for, target, program.source, program.options, folder)
                   for target, program, folder in jobs]
        for (target, program, _), result in zip(jobs, results):
            for report in result.result():
                text, within = line_of(target, program.what, report)
                print(text, flush=True)
                lines, kept = lines + 1, kept and within
    if not lines:
        sys.exit("gpu_compile.py: no program was found")
    if not kept:
        sys.exit("gpu_compile.py: a limit is passed where a number has a '!'")


if __name__ == "__main__":
    main()
