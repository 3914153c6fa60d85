#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real programs at work under the agent: three of Ruby's, Composer and PHPUnit, perltidy, ExifTool and SpamAssassin, nginx
with Lua and Neovim, Elixir's compiler, RabbitMQ and a web server in Erlang, Azure's MCP server and a web server in C#.
usage: test_real_programs.py [PROGRAM...]   (exit 77: they cannot be had)
KILN_SECONDS: of each. KILN_PREPARE=DIR: no test; puts the files into DIR and prints each program's command, to try another
profiler on it."""
import collections
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import dotnet_stacks  # noqa: E402
import hotspot_stacks  # noqa: E402
import php_stacks  # noqa: E402
import ports  # noqa: E402

SECONDS = int(os.environ.get("KILN_SECONDS", "30"))
WHOLE = 0.99
LEAST = 200
# Largest share of samples with code that was freed before its name was read: ERB compiles each page anew.
UNNAMED = 0.02
ROOTS = {"_start", "_dl_start_user", "clone", "clone3", "__clone", "__clone3"}
PACKAGES = {
    "ruby": ["ruby3.1", "ruby", "ruby-webrick", "rake", "dash", "coreutils"],
    "php": ["php8.2-cli", "composer", "phpunit", "php8.2-xml", "php8.2-mbstring", "php8.2-curl", "php8.2-opcache", "dash",
            "coreutils"],
    "perl": ["perl", "perltidy", "libimage-exiftool-perl", "spamassassin", "dash", "coreutils"],
    "luajit": ["nginx", "libnginx-mod-http-lua", "lua-cjson", "apache2-utils", "neovim", "dash", "coreutils"],
    "beam": ["erlang-base", "elixir", "rabbitmq-server", "amqp-tools", "apache2-utils", "dash", "sed", "grep", "coreutils"],
}
PHP = "php8.2 -n " + "".join(f"-d extension={name} " for name in (
    "ctype", "mbstring", "dom", "xml", "xmlwriter", "tokenizer", "phar", "iconv", "curl")) + "-d memory_limit=-1 "
LIBRARY = "/usr/lib/ruby/3.1.0/"
MODULES = "for i in $(seq 60); do sed s/NUMBER/$i/g cart.ex > lib/cart$i.ex; done"
RABBITMQ = ("export ERL_EPMD_PORT=$PORT2 ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_DIST_PORT=$PORT3 RABBITMQ_NODE_PORT=$PORT "
            "RABBITMQ_NODENAME=kiln@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_MNESIA_BASE=/w/mnesia "
            "RABBITMQ_LOG_BASE=/w/log RABBITMQ_PID_FILE=/w/pid RABBITMQ_ENABLED_PLUGINS_FILE=/w/plugins "
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'; "
            "/usr/lib/rabbitmq/bin/rabbitmq-server &")
# Deleting a queue recurses over its messages: with many more messages stacks would exceed the agent's 1024 frames.
URL = "--url=amqp://guest:guest@localhost:$PORT"
REQUESTS = "ab -q -k -c 4 -n 20000 http://127.0.0.1:$PORT/7 || sleep 1"
# {program: (runtime, shell command that is repeated, optional command that runs once before)}
PROGRAMS = {
    "rdoc": ("ruby", "rm -rf doc; rdoc -q -o doc " + " ".join(
        LIBRARY + part for part in ("rubygems", "net", "optparse", "rdoc"))),
    "rake": ("ruby", "rake"),
    "webrick": ("ruby", "ruby server.rb"),
    "composer": ("php", f"COMPOSER_HOME=/tmp COMPOSER_ALLOW_SUPERUSER=1 {PHP} /usr/bin/composer dump-autoload -o "
                        "--no-interaction"),
    "phpunit": ("php", f"{PHP} /usr/bin/phpunit --repeat 20 --do-not-cache-result ParserTest.php"),
    "perltidy": ("perl", "perltidy -opath=out /usr/share/perl/5.36/*.pm /usr/share/perl/5.36/*/*.pm"),
    "exiftool": ("perl", "exiftool -r -j /usr/share /usr/share /usr/share"),
    "spamassassin": ("perl", "spamassassin -L --mbox < box"),
    "nginx": ("luajit", REQUESTS, "nginx -p /w -c /w/nginx.conf &"),
    "nvim": ("luajit", "nvim --headless -n -u init.lua +qa"),
    "mix": ("beam", "mix compile --force", f"mkdir -p lib; {MODULES}"),
    "rabbitmq": ("beam", f"amqp-declare-queue {URL} -q carts && seq 500 | amqp-publish {URL} -r carts -l && "
                         f"amqp-delete-queue {URL} -q carts || sleep 1", RABBITMQ),
    "shop_server": ("beam", REQUESTS, "erlc shop_server.erl && erl -noshell -eval \"shop_server:start($PORT).\" &"),
    "azmcp": ("dotnet", "sh ask_mcp.sh $DOTNET9/azmcp server start"),
    "server": ("dotnet", "$DOTNET8/dotnet exec server.dll"),
}
FILES = {"nginx": "nginx", "nvim": "nvim", "azmcp": "azmcp"}  # prefix of the executable's name, if it is not the runtime's
# Smallest share of samples with frames of the runtime; 0.95 for others. It is lower where programs start again and again, in
# native code, or where .NET compiles.
SHOWN = {"luajit": 0.7, "beam": 0.85, "dotnet": 0.6}
# The runtime's own function in which its threads spin while they wait for work. Without frames of the runtime such samples
# do not count for SHOWN: there are more of them on a machine that wakes threads slowly.
IDLE = {"beam": "erts_schedule"}
# A function that runs only when the program does its work (a server that answers with errors would not). At least WORKED of
# the samples must have it.
WORK = {"nginx": "page", "nvim": "putTable", "mix": "elixir_erl_compiler:compile/3", "shop_server": "shop_server:page/1",
        "rabbitmq": "rabbit_channel:handle_cast/2", "azmcp": "AzureMcp.Commands.Server.ToolOperations.OnListTools",
        "server": "Shop.Store.Page"}
WORKED = 0.03
INSTALLED = {}


def root_of(runtime):
    """(a root directory with RUNTIME's programs, fetched if it is missing; None), or (None; why it is not available). .NET's
    programs run in the machine's own root directory."""
    if runtime not in INSTALLED:
        script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "debian.sh")
        if runtime == "dotnet":
            roots, lacks = zip(*map(dotnet_stacks.runtime, ("8", "9")))
            INSTALLED[runtime] = ("/", None) if all(roots) else (None, next(filter(None, lacks)))
            os.environ.update((f"DOTNET{n}", root) for n, root in zip("89", roots) if root)
            return INSTALLED[runtime]
        done = subprocess.run([script, f"{runtime}-programs", "bookworm", *PACKAGES[runtime]], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        INSTALLED[runtime] = (done.stdout.strip(), None) if not done.returncode else (None, done.stderr.strip())
    return INSTALLED[runtime]


def prepare(program, root, directory):
    """Puts PROGRAM's files into DIRECTORY, which is /w below ROOT: (command, port that it listens on, or None)."""
    os.chmod(directory, 0o755)
    for name in os.listdir(os.path.join(HERE, "programs")):
        shutil.copy(os.path.join(HERE, "programs", name), directory)
    os.makedirs(directory + "/out", exist_ok=True)
    runtime, again, *once = PROGRAMS[program]
    found = [ports.free_port() for _ in range(3)]
    if program == "composer":
        for i in range(8):
            shutil.copytree(root + "/usr/share/php", f"{directory}/share/{i}", symlinks=True, dirs_exist_ok=True)
    if program == "spamassassin":
        with open(directory + "/box", "wb") as box:
            subprocess.run(["perl", directory + "/mails.pl"], stdout=box, check=True)
    if program == "nginx":
        path = pathlib.Path(directory, "nginx.conf")
        path.write_text(path.read_text(encoding="utf-8").replace("PORT", str(found[0])), encoding="utf-8")
    if program == "server":
        subprocess.run([dotnet_stacks.SCRIPT, "compile", directory + "/server.cs", directory + "/server.dll"], check=True)
        pathlib.Path(directory, "server.runtimeconfig.json").write_text(
            '{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "8.0.4"}}}', encoding="utf-8")
    if runtime in ("luajit", "beam"):  # the packages are only unpacked, so these files are missing
        for name, text in (("passwd", "root:x:0:0::/w:/bin/sh\n"), ("group", "root:x:0:\n"),
                           ("hosts", "127.0.0.1 localhost\n")):
            pathlib.Path(root, "etc", name).write_text(text, encoding="utf-8")
    settings = f"export LC_ALL=C.UTF-8 HOME=$PWD TMPDIR=$PWD PORT={found[0]} PORT2={found[1]} PORT3={found[2]}"
    script = f"{settings}; {once[0] if once else ':'}\nwhile :; do {again}; done"
    if runtime == "dotnet":
        roots = " ".join(f"DOTNET{n}={os.environ[f'DOTNET{n}']}" for n in "89")
        exports = f"export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 {roots}"
        return ["sh", "-c", f"cd {directory}; {exports}; {script}"], None
    port = found[0] if any("$PORT" in part for part in (again, *once)) else None
    return hotspot_stacks.in_root(root, directory, ["sh", "-c", f"cd /w; {script}"]), port


def wrong(sample):
    """Why the stack of SAMPLE is not complete, or None."""
    marker = next((name for kind, name in sample.frames if kind == "abort-marker"), None)
    if marker:
        return "cut: " + marker
    if ("native", "[jit]") in sample.frames:
        return "code that is nobody's"
    if sample.user and sample.user[-1] not in ROOTS and "+0x" not in sample.user[-1]:
        return "no root: " + sample.user[-1]
    return None


def judge(program, samples):
    """Prints how many samples of PROGRAM's interpreters are complete; [problem]. Samples from before the agent attached to an
    interpreter are marked in their stacks and not counted."""
    runtime = PROGRAMS[program][0]
    before = {f"cut: {end}" for end in textdump.before_attaching(runtime)}
    why, example, shown, idle, unnamed, worked = collections.Counter(), {}, 0, 0, 0, 0
    for s in samples:
        # Skip shells that have not called exec yet, and samples without user frames.
        if not (s.exe or "").startswith(FILES.get(program, runtime)) or not s.user:
            continue
        reason = wrong(s)
        why[reason] += s.value
        example[reason] = s
        if reason not in before:
            is_shown = any(kind == runtime for kind, _ in s.frames)
            shown += s.value if is_shown else 0
            idle += s.value if not is_shown and ("native", IDLE.get(runtime)) in s.frames else 0
            unnamed += s.value if any("[unknown]" in name or "no name]" in name for _, name in s.frames) else 0
            worked += s.value if (runtime, WORK.get(program)) in s.frames else 0
    first = sum(why.pop(reason, 0) for reason in before)
    total, whole = sum(why.values()), why.pop(None, 0)
    print(f"{program:12} {total:6} samples, {first} before attaching: {whole / max(total, 1):.2%} whole, "
          f"{shown / max(total - idle, 1):.2%} with frames of {runtime} ({idle} wait for work), {unnamed} with a frame without a name", flush=True)
    for reason, n in why.most_common(5):
        print(f"    {n:4} {reason}: {' < '.join(name for _, name in example[reason].frames)[:1000]}")
    problems = []
    if total < LEAST:
        problems.append(f"{program}: {total} samples are too few")
    if whole < WHOLE * total:
        problems.append(f"{program}: {total - whole} of {total} samples are not whole")
    if shown < SHOWN.get(runtime, 0.95) * (total - idle):
        problems.append(f"{program}: {shown} of {total - idle} samples have frames of {runtime}")
    if program in WORK and worked < WORKED * total:
        problems.append(f"{program}: {worked} of {total} samples have {WORK[program]}: it does not do its work")
    if unnamed > UNNAMED * total:
        problems.append(f"{program}: {unnamed} samples have a frame without a name")
    return problems


def wait_for(port, process):
    """Waits until a process listens on PORT; raises RuntimeError when the program ends or after 120 s."""
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as s:
            if not s.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.2)
    raise RuntimeError(f"nobody listens on port {port}")


def end(process):
    """Kills the first process of the pid namespace, with which all others in it end, daemons too."""
    for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split():
        os.kill(int(child), signal.SIGKILL)
    try:
        process.wait(60)
    finally:
        process.kill()


def run(program, root):
    with tempfile.TemporaryDirectory() as directory:
        command, port = prepare(program, root, directory)
        namespace = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        process = subprocess.Popen([*namespace, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True,
                                   preexec_fn=lambda: os.nice(10))  # a lower priority than the agent's
        try:
            if port:
                wait_for(port, process)
            with agent.Agent("--duration", f"{SECONDS}s", config=php_stacks.config()) as a:
                if a.wait(SECONDS + 120):
                    raise RuntimeError(f"agent: {a.stderr()[-500:]}")
                return judge(program, a.samples())
        finally:
            end(process)


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
            print(shlex.join(prepare(program, root, f"{directory}/{program}")[0]))
        else:
            problems += run(program, root)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0 if ran else 77


if __name__ == "__main__":
    sys.exit(main())
