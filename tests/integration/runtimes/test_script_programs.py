#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of Debian in Ruby, PHP and Perl at work under the agent: three of Ruby's, Composer and PHPUnit, perltidy,
ExifTool and SpamAssassin.
usage: test_script_programs.py [PROGRAM...]   (exit 77: they cannot be had)
KILN_SECONDS: of each. KILN_PREPARE=DIR: no test; puts the files into DIR and prints each program's command, to try another
profiler on it."""
import collections
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import hotspot_stacks  # noqa: E402
import php_stacks  # noqa: E402

SECONDS = int(os.environ.get("KILN_SECONDS", "30"))
WHOLE = 0.99
LEAST = 200
# Code that is freed before its name is read: ERB compiles each page anew, and a busy machine reads late.
UNNAMED = 0.02
ROOTS = {"_start", "clone", "clone3", "__clone", "__clone3"}
PACKAGES = {
    "ruby": ["ruby3.1", "ruby", "ruby-webrick", "rake", "dash", "coreutils"],
    "php": ["php8.2-cli", "composer", "phpunit", "php8.2-xml", "php8.2-mbstring", "php8.2-curl", "php8.2-opcache", "dash",
            "coreutils"],
    "perl": ["perl", "perltidy", "libimage-exiftool-perl", "spamassassin", "dash", "coreutils"],
}
PHP = "php8.2 -n " + "".join(f"-d extension={name} " for name in (
    "ctype", "mbstring", "dom", "xml", "xmlwriter", "tokenizer", "phar", "iconv", "curl")) + "-d memory_limit=-1 "
LIBRARY = "/usr/lib/ruby/3.1.0/"
# {program: (runtime, what a shell does again and again)}
PROGRAMS = {
    "rdoc": ("ruby", "rm -rf doc; rdoc -q -o doc " + " ".join(LIBRARY + part for part in ("rubygems", "net", "optparse", "rdoc"))),
    "rake": ("ruby", "rake"),
    "webrick": ("ruby", "ruby server.rb"),
    "composer": ("php", f"COMPOSER_HOME=/tmp COMPOSER_ALLOW_SUPERUSER=1 {PHP} /usr/bin/composer dump-autoload -o "
                        "--no-interaction"),
    "phpunit": ("php", f"{PHP} /usr/bin/phpunit --repeat 20 --do-not-cache-result ParserTest.php"),
    "perltidy": ("perl", "perltidy -opath=out /usr/share/perl/5.36/*.pm /usr/share/perl/5.36/*/*.pm"),
    "exiftool": ("perl", "exiftool -r -j /usr/share /usr/share /usr/share"),
    "spamassassin": ("perl", "spamassassin -L --mbox < box"),
}
INSTALLED = {}


def root_of(runtime):
    """The root directory with RUNTIME's programs, fetched when it is missing, and None; or None and why it cannot be had."""
    if runtime not in INSTALLED:
        script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "debian.sh")
        done = subprocess.run([script, f"{runtime}-programs", "bookworm", *PACKAGES[runtime]], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        INSTALLED[runtime] = (done.stdout.strip(), None) if not done.returncode else (None, done.stderr.strip())
    return INSTALLED[runtime]


def prepare(program, root, directory):
    """What PROGRAM works on into DIRECTORY, which is /w below ROOT; its command."""
    os.chmod(directory, 0o755)
    for name in os.listdir(os.path.join(HERE, "programs")):
        shutil.copy(os.path.join(HERE, "programs", name), directory)
    os.makedirs(directory + "/out", exist_ok=True)
    if program == "composer":
        for i in range(8):
            shutil.copytree(root + "/usr/share/php", f"{directory}/share/{i}", symlinks=True, dirs_exist_ok=True)
    if program == "spamassassin":
        with open(directory + "/box", "wb") as box:
            subprocess.run(["perl", directory + "/mails.pl"], stdout=box, check=True)
    return hotspot_stacks.in_root(root, directory, [
        "sh", "-c", f"cd /w; export LC_ALL=C.UTF-8; while :; do {PROGRAMS[program][1]}; done"])


def wrong(sample):
    """Why SAMPLE is not whole, or None."""
    marker = next((name for kind, name in sample.frames if kind == "abort-marker"), None)
    if marker:
        return "cut: " + marker
    if sample.user and sample.user[-1] not in ROOTS and "+0x" not in sample.user[-1]:
        return "no root: " + sample.user[-1]
    return None


def judge(program, samples):
    """Prints what became of the samples of PROGRAM's interpreters; [problem]. What is cut before one of them is attached to
    says so."""
    runtime = PROGRAMS[program][0]
    before = {f"cut: {end}" for end in textdump.before_attaching(runtime)}
    why, example, shown, unnamed = collections.Counter(), {}, 0, 0
    for s in samples:
        # A shell too, until it is replaced; what has no frames of user space is the kernel's.
        if not (s.exe or "").startswith(runtime) or not s.user:
            continue
        reason = wrong(s)
        why[reason] += s.value
        example[reason] = s
        if reason not in before:
            shown += s.value if any(kind == runtime for kind, _ in s.frames) else 0
            unnamed += s.value if any("[unknown]" in name or "no name]" in name for _, name in s.frames) else 0
    first = sum(why.pop(reason, 0) for reason in before)
    total, whole = sum(why.values()), why.pop(None, 0)
    print(f"{program:12} {total:6} samples, {first} before attaching: {whole / max(total, 1):.2%} whole, "
          f"{shown / max(total, 1):.2%} with frames of {runtime}, {unnamed} with a frame without a name", flush=True)
    for reason, n in why.most_common(5):
        print(f"    {n:4} {reason}: {' < '.join(name for _, name in example[reason].frames)[:1000]}")
    problems = []
    if total < LEAST:
        problems.append(f"{program}: {total} samples are too few")
    if whole < WHOLE * total:
        problems.append(f"{program}: {total - whole} of {total} samples are not whole")
    if shown < 0.95 * total:
        problems.append(f"{program}: {shown} of {total} samples have frames of {runtime}")
    if unnamed > UNNAMED * total:
        problems.append(f"{program}: {unnamed} samples have a frame without a name")
    return problems


def run(program, root):
    with tempfile.TemporaryDirectory() as directory:
        command = prepare(program, root, directory)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True,
                                   preexec_fn=lambda: os.nice(10))  # the agent has to get to its work
        try:
            with agent.Agent("--duration", f"{SECONDS}s", config=php_stacks.config()) as a:
                if a.wait(SECONDS + 120):
                    raise RuntimeError(f"agent: {a.stderr()[-500:]}")
                return judge(program, a.samples())
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main():
    if os.geteuid():
        print("skipped: not root")
        return 77
    problems, ran = [], 0
    for program in sys.argv[1:] or PROGRAMS:
        root, why = root_of(PROGRAMS[program][0])
        if not root:
            print(f"skipped: {program}: {why}")
            continue
        ran += 1
        if directory := os.environ.get("KILN_PREPARE"):
            os.makedirs(f"{directory}/{program}", exist_ok=True)
            print(shlex.join(prepare(program, root, f"{directory}/{program}")))
        else:
            problems += run(program, root)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0 if ran else 77


if __name__ == "__main__":
    sys.exit(main())
