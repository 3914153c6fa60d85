// SPDX-License-Identifier: Apache-2.0
package kiln;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;

/**
 * Ten thousand virtual threads, for test_hotspot.py. usage: HotspotLoom SECONDS [vthreads|vyield]
 *
 * Each has work at the end of a chain of calls; in "vyield" it gives up its carrier in the middle of the chain each time,
 * so that what called it lies in the heap.
 */
public class HotspotLoom {
    static volatile long sink;
    static long end;

    static long burn(long x) { // AT loom_first
        for (int i = 0; i < 4000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 29;
        }
        return x;
    } // AT loom_last

    static long inner(long x, boolean yields) {
        if (yields) {
            Thread.yield();
            LockSupport.parkNanos(1000);
        }
        return burn(x) + 1;
    }

    static long middle(int depth, long x, boolean yields) {
        if (depth > 0) {
            return middle(depth - 1, x, yields) + 1;
        }
        return inner(x, yields) + 1;
    }

    static void work(boolean yields) {
        while (System.currentTimeMillis() < end) {
            sink += middle(10, sink, yields);
            if (!yields) {
                LockSupport.parkNanos(1_000_000);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        end = System.currentTimeMillis() + Long.parseLong(arguments[0]) * 1000;
        boolean yields = arguments[1].equals("vyield");
        System.out.println("begin " + System.getProperty("java.version"));
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 10000; i++) {
            threads.add(Thread.ofVirtual().name("virtual-" + i).start(() -> work(yields)));
        }
        for (Thread t : threads) {
            t.join();
        }
        System.out.println("end");
    }
}
