# SPDX-License-Identifier: Apache-2.0
""".NET's runtimes, and whether a sample shows what dotnet_work.cs is written to do."""
import collections
import os
import re
import shutil
import subprocess
import tempfile

from kiln import textdump

import perl_stacks
import python_stacks
from python_stacks import HERE, ROOTS, config  # noqa: F401

VERSIONS = ["8", "9"]
COMPLETE = 0.995
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("dotnet")}
SCRIPT = os.path.join(HERE, "..", "..", "..", "hack", "lib", "dotnet.sh")
SETTINGS = {"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
RUN = ["Shop.Work.Do", "Shop.Work.For", "Shop.Work.Main"]
STATIC = "Shop.Work.Work.<lambda>"  # of the table of chains: made in the static constructor

# Frames of the program, leaf first: a name, or a set of them. "*": any of the library, native ones, none at all.
# What comes below RUN, or of the thread pool, is not looked at.
CHAINS = {
    "recursion": ["Spin", "Once", *["Recurse"] * 21, STATIC],
    "small": ["Tiny", "OnceTiny", "Small"],
    "generic": ["Spin", {"Shop.Box<T>.Put", "Shop.Box<T>.Lid.Close<U>"}, "Generic"],
    "lambda": ["Spin", "Lambda.<lambda>", "Lambda"],
    "iterator": ["Spin", "Each", "Iterator"],
    "interface": ["Spin", {"Shop.Plain.Of", "Shop.Reduced.Of"}, "Price", "Interface"],
    "multicast": ["Spin", {"First", "Second"}, "*", "Multicast"],
    "catch": ["Spin", "Once", "Catch", "*", "Catch"],
    "catch, thrown": ["*", "Throw", "Throw", "Throw", "Throw", "Catch"],
    "finally": ["Spin", "Once", "Finally", "*", "Throw", "Throw", "Finally"],
    "finally, thrown": ["*", "Throw", "Throw", "Finally"],
    "stackalloc": ["Spin", "Once", "Stack"],
    "large": ["Spin", "Fill", "LargeFrame"],
    "native": ["Spin", "Compare", "*", "Native"],
    "library": ["Spin", "ByPrice", "*", "Library"],
    "dynamic": ["Spin", "Made", "Dynamic"],
    "async": ["Spin", "Once", "TotalAsync", "*"],
    "async, waiting": ["*", "Async"],
    "alloc": ["*", "Alloc"],
    "alloc, spin": ["Spin", "Alloc"],
}
