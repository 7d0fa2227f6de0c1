#!/usr/bin/env python3
"""Runs small programs of many kinds bare and under wmshim with nothing set, on a real GPU; their output must agree.

    python3 tests/workloads/zoo.py [--only NAME,...] [--repeat 3] [--jobs 6] [--json FILE]

The programs are the files of the folder `zoo`, each a way in which people use a GPU from Python; they print what must not change, and no
times. A comment `# alone` keeps others off the GPU meanwhile; `# env: NAME=VALUE` sets a variable on both sides. A program that fails bare
as well (a package is missing, say) is shown and counts for nothing. Exit code 1 if a program differs.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from matrix import HERE, Options



class Program:
    def __init__(self, path):
        text = path.read_text()
        self.name, self.path = path.stem, path
        self.alone = "\n# alone" in text
        self.env = dict(re.findall(r"^# env: (\w+)=(.*)$", text, re.M))

    def run(self, library, limit):
        """Exit code, output, the end of its errors, seconds. Caches of compilers are its own."""
        with tempfile.TemporaryDirectory() as folder:
            caches = {name: f"{folder}/{name}" for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")}
            env = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | caches | self.env
            if library:
                env["LD_PRELOAD"] = str(library)
            begin = time.monotonic()
            command = [sys.executable, str(self.path)]
            # A group of its own, so that its children end with it.
            child = subprocess.Popen(command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            try:
                out, err = child.communicate(timeout=limit)
                code = child.returncode
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                out, err = child.communicate()
                code = "no end"
            return {"code": code, "out": out.strip(), "err": err[-2000:], "seconds": round(time.monotonic() - begin, 1)}

    def judge(self, library, limit):
        bare, full = self.run(None, limit), self.run(library, limit)
        same = bare["code"] == full["code"] and bare["out"] == full["out"]
        verdict = "differs" if not same else "ok" if bare["code"] == 0 else "fails bare"
        return {"program": self.name, "verdict": verdict, "bare": bare, "full": full}


def show(row):
    bare, full = row["bare"], row["full"]
    print(f"{row['program']:28} {row['verdict']:10} bare {bare['code']!s:>6} {bare['seconds']:6.1f} s   wmshim {full['code']!s:>6} {full['seconds']:6.1f} s", flush=True)
    if row["verdict"] != "ok":
        for side in ("bare", "full"):
            last = [line for line in row[side]["err"].splitlines() if line.strip()][-2:]
            print(f"    {side}: {row[side]['out'][:160]!r}", *last, sep="\n        ", flush=True)


def once(programs, options):
    judge = lambda program: program.judge(options.library, options.limit)
    rows = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(judge, program) for program in programs if not program.alone]
        for future in concurrent.futures.as_completed(waiting):
            rows.append(future.result())
            show(rows[-1])
    for program in programs:
        if program.alone:
            rows.append(judge(program))
            show(rows[-1])
    return rows


def main():
    parser = Options(__doc__, limit=150)
    parser.add_argument("--only", help="names, or parts of them")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=6, help="programs at once")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [""]
    programs = [Program(path) for path in sorted((HERE / "zoo").glob("*.py"))]
    programs = [program for program in programs if any(word in program.name for word in wanted)]
    if not programs:
        parser.error(f"no program has {options.only} in its name")
    rounds = [once(programs, options) for _ in range(options.repeat)]
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1))
    words = [row["verdict"] for rows in rounds for row in rows]
    print(", ".join(f"{words.count(word)} {word}" for word in ("ok", "fails bare", "differs")))
    sys.exit("differs" in words)


if __name__ == "__main__":
    main()
