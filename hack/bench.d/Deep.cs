// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.CompilerServices;

/// <summary>Spins at the end of a chain of calls, as many as its argument says. Every 20 ms it returns and calls again.</summary>
public static class Deep {
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Leaf(int finish) {
        long x = 1;
        do {
            for (int i = 0; i < 20000; i++) {
                x = x * 6364136223846793005L + i;
            }
        } while (Environment.TickCount - finish < 0);
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Down(int n, int finish) {
        return n == 0 ? Leaf(finish) : Down(n - 1, finish) + 1;
    }

    public static void Main(string[] args) {
        for (;;) {
            Down(int.Parse(args[0]), Environment.TickCount + 20);
        }
    }
}
